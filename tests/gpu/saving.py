"""Checkpoints of a state on the device: what both modes write, and the memory that they pin."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from pipeline.train.checkpoints.checkpoint_folders import checkpoint_dir
from pipeline.train.checkpoints.checkpoint_record import Identity
from pipeline.train.checkpoints.checkpoint_record import Work as WorkOfStage
from pipeline.train.checkpoints.saver import Saver
from pipeline.train.checkpoints.training_state import Checkpoints, TrainingState
from pipeline.train.memory.host_memory import resident_bytes
from pipeline.train.ranks.process_group import join_ranks, leave_ranks, new_host_group
from slurm_jobs.worker.job_identity import free_port
from tests.contexts import make_context
from tests.gpu.work import Work

_IDENTITY = Identity(
    lasting_config={"seed": 0}, dataset_fingerprint="d", work=WorkOfStage(), versions={"torch": "2"}
)
_SLACK_BYTES = 64 << 20
"""What a process may grow by for other reasons."""


def modes(work: Work) -> None:
    """Save a state beside the steps twice and at once, and compare what was written."""
    width, num = (2048, 20) if work.has_gpu and not work.is_short else (64, 3)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(num)))
    model.to(work.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    _update(model, optimizer)
    context = make_context("train", work.folder / "saving", main_port=free_port())
    ranks = join_ranks(context, device_type=work.device, timeout_min=0.5)
    state = TrainingState(model=model, optimizer=optimizer, device=work.torch_device)
    checkpoints = Checkpoints(
        root=work.folder / "saved", attempt=1, ranks=ranks, state=state, identity=_IDENTITY
    )
    saver = Saver(
        checkpoints,
        keep_last=9,
        group=new_host_group(timeout_min=0.5),
        device=work.torch_device,
    )
    wanted = _copy(state)
    num_bytes = sum(each.numel() * each.element_size() for each in _tensors(wanted))
    work.note(state_mb=num_bytes / 1e6)

    with _noted(work, "first_async"):
        saver.begin(1, 0.5)
    _update(model, optimizer)  # while the thread writes
    saver.finish()
    root = checkpoints.root
    work.check("the state is that of its step", _is_in(root, 1, wanted))
    work.check("the update came later", not _is_in(root, 1, _copy(state)))
    before = resident_bytes()
    with _noted(work, "second_async"):
        saver.begin(2, 0.5)
    grown = resident_bytes() - before
    work.check("a second save takes no memory again", grown < _SLACK_BYTES, f"{grown:,} bytes")
    saver.finish()

    pinned = _pinned_bytes()
    with _noted(work, "sync"):
        saver.save(3, 0.5)
    grown = _pinned_bytes() - pinned
    work.check("a save at once pins little", grown < _SLACK_BYTES, f"{grown:,} bytes")
    wanted = _copy(state)
    for step, name in ((2, "beside the steps"), (3, "at once")):
        work.check(f"{name}: the state is the same", _is_in(root, step, wanted))
    saver.close()
    leave_ranks()


def _update(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


@contextmanager
def _noted(work: Work, name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    work.note(**{f"{name}_s": time.perf_counter() - began})


def _pinned_bytes() -> int:
    """Return what torch's allocator of pinned memory has; 0 without a GPU."""
    return int(torch.cuda.host_memory_stats().get("allocated_bytes.current", 0))


def _shared(state: TrainingState) -> dict[str, Any]:
    collected = state.collect(0)
    return {name: collected[name] for name in ("model", "optimizer")}


def _copy(state: TrainingState) -> dict[str, Any]:
    copied: dict[str, Any] = tree_map_only(
        torch.Tensor, lambda each: each.detach().cpu().clone(), _shared(state)
    )
    return copied


def _tensors(state: dict[str, Any]) -> list[torch.Tensor]:
    return [each for each in tree_leaves(state) if isinstance(each, torch.Tensor)]


def _is_in(root: Path, step: int, wanted: dict[str, Any]) -> bool:
    """Check whether a checkpoint has these tensors, bit for bit."""
    loaded: dict[str, Any] = tree_map_only(torch.Tensor, torch.empty_like, wanted)
    dcp.load(loaded, checkpoint_id=checkpoint_dir(root, step), no_dist=True)
    pairs = zip(_tensors(loaded), _tensors(wanted), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
