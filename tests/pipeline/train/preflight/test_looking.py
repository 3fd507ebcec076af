"""What is counted of a node's memory beside what the card holds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pipeline.train.device import Workplace
from pipeline.train.memory import MemoryNeed, ModelSizes
from pipeline.train.preflight import node_warning
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.configs.training_parts import CheckpointConfig
from tests.contexts import make_context

MB = 1_000_000
NEED = MemoryNeed(
    weights_bytes=400 * MB,
    buffers_bytes=0,
    gradients_bytes=400 * MB,
    optimizer_bytes=800 * MB,
    accumulated_bytes=0,
    computing_bytes=0,
    activations_bytes=0,
    mask_bytes=0,
    offloads=False,
)
NO_WEIGHTS = ModelSizes(parameters=(), buffer_bytes=0, hidden_size=1, num_layers=1)


def judge(tmp_path: Path, mode: str, node_mib: int, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.setenv("SLURM_MEM_PER_NODE", str(node_mib))
    context = dataclasses.replace(make_context("train", tmp_path), num_local_ranks=2)
    job = SimpleNamespace(
        context=context,
        config=TrainConfig(num_steps=1, checkpoint=CheckpointConfig(mode=mode)),
        workplace=Workplace(device=torch.device("cuda"), precision="bf16", num_compute_threads=1),
    )
    return node_warning(job, NEED, NO_WEIGHTS, "train less")


def test_copies_of_checkpoints_are_counted_where_they_are_written_beside_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = judge(tmp_path, "async", 2_000, monkeypatch)
    assert warning is not None
    assert "must hold 2.40 GB or more, but SLURM_MEM_PER_NODE gives 2.10 GB" in warning
    assert warning.endswith("train less; or save at once (`checkpoint: {mode: sync}`)")
    assert judge(tmp_path, "sync", 2_000, monkeypatch) is None
    assert judge(tmp_path, "async", 2_400, monkeypatch) is None
