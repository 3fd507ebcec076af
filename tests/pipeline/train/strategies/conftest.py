"""The pairs of ranks that go through all cases, once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.models.computation.torch_versions import can_shard_whole_numbers
from tests.pipeline.models.tiny import write_dataset, write_tiny
from tests.pipeline.train.conftest import run_ranks

KINDS = ("llava_siglip", "qwen2_5_vl", "smolvlm", "qwen2_vl", "qwen3_vl", "qwen3_5", "qwen3_5_moe")
"""The small model takes the pictures of the first."""
TIMEOUT_S = 900  # ends what hangs: all cases take 200 s on a slow machine that others use
NO_PACKED_SHARDS = (
    "cannot shard 4-bit weights",
    "only Tensors of floating point",
    "Only Tensors of floating point",
)
"""What the refusal says, and what torch 2.11 says where a case leaves it out."""


@pytest.fixture(scope="session")
def by_rank(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each case of our own strategies gave on ranks 0 and 1."""
    return _run_pair(tmp_path_factory.mktemp("pair"), "ours")


@pytest.fixture(scope="session")
def found(by_rank: list[dict[str, Any]]) -> dict[str, Any]:
    """What each case of our own strategies gave on rank 0."""
    return by_rank[0]


@pytest.fixture(scope="session")
def accelerated_by_rank(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each case of accelerate's files, and what it is compared with, gave on both ranks."""
    return _run_pair(tmp_path_factory.mktemp("accelerated_pair"), "accelerate")


@pytest.fixture(scope="session")
def searched_by_rank(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the searches for microbatches that are slow gave on both ranks."""
    return _run_pair(tmp_path_factory.mktemp("searching_pair"), "searches")


def _run_pair(folder: Path, group: str) -> list[dict[str, Any]]:
    for kind in KINDS:
        own = folder / "kinds" / kind
        write_tiny(kind, own / "model", tied=kind == "qwen2_vl")
        (own / "dataset_dir").write_text(str(write_dataset(kind, folder / "data" / kind)))
    command = [str(Path(__file__).with_name("rank_pair.py"))]
    assert run_ranks(command, 2, str(folder), group, timeout_s=TIMEOUT_S) == [0, 0]
    texts = [(folder / f"found.{rank}.json").read_text() for rank in range(2)]
    return [Found(json.loads(text)) for text in texts]


class Found(dict[str, Any]):
    """What the cases gave by name; a test of one that this torch cannot run is skipped."""

    def __getitem__(self, name: str) -> Any:
        case = super().__getitem__(name)
        if needs_newer_torch(case):
            pytest.skip(f"torch {torch.__version__} cannot shard 4-bit weights")
        return case


def needs_newer_torch(case: Mapping[str, Any]) -> bool:
    """Check whether a case failed because this torch cannot shard weights in 4 bits."""
    message = "".join(case.get(key, "") for key in ("error", "crash"))
    return not can_shard_whole_numbers() and any(reason in message for reason in NO_PACKED_SHARDS)


CLOSE = 1e-6


def relatively(values: list[float], rel: float = CLOSE) -> Any:
    return pytest.approx(values, rel=rel)
