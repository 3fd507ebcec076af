"""Calls of the stage `download` against a hub of the test's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from pipeline.download.stage import run
from slurm_jobs.formats.records.task_context import TaskContext
from tests.contexts import make_context
from tests.hub_server import Repository

MODEL, DATA = "some/model", "some/data"
WEIGHTS = bytes(range(256)) * 8_000
"""2 MB: several blocks of the server."""
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
USEFUL = {"config.json", "chat_template.jinja", *SHARDS}
"""Files of the model that are downloaded by default."""


def use_hub(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Direct huggingface_hub of this process, which has read its variables, to a hub."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


def model_files(more: str = "") -> dict[str, bytes]:
    """Files of a model, with what other programs read."""
    return {
        "config.json": json.dumps({"model_type": "qwen2_5_vl", "more": more}).encode(),
        "chat_template.jinja": b"{{ messages }}",
        "model-00001-of-00002.safetensors": WEIGHTS,
        "model-00002-of-00002.safetensors": b"2" + WEIGHTS,
        "pytorch_model.bin": b"pickle",
        "original/params.json": b"{}",
        "onnx/model.json": b"{}",
        "code.py": b"raise SystemExit",
    }


def repositories() -> dict[str, Repository]:
    """A model, and a data set of two splits."""
    data = {"README.md": b"# Data", "data/train-0.parquet": WEIGHTS, "data/test-0.parquet": b"t"}
    return {
        f"models/{MODEL}": Repository(model_files()),
        f"datasets/{DATA}": Repository(data),
    }


def download(root: Path, config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Run the stage as an attempt does."""
    return run(config, make_context("get", root, **changes))


def context_of(root: Path) -> TaskContext:
    """The context of the same attempt."""
    return make_context("get", root)


def names_below(folder: Path) -> set[str]:
    """All files below a folder, by their paths in it."""
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
