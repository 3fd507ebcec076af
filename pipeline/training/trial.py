"""Passes made before a training's first step, to measure what they take; nothing is learned."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from pipeline.data.batch import Batch, ModelNeeds
from pipeline.data.dataset import ShardedDataset
from pipeline.models.layouts import ImageLayout
from pipeline.timing import SpanLog
from pipeline.training.batches import loss_of, to_device
from pipeline.training.checkpoint.state import rng_state, set_rng_state
from pipeline.training.device import Workplace
from pipeline.training.ranks import Ranks
from pipeline.training.strategies import Spread, Strategy
from slurm_jobs.common.stage_config.train import TrainConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Where a choice is tried."""

    config: TrainConfig
    dataset: ShardedDataset
    strategy: Strategy
    spread: Spread
    needs: ModelNeeds
    """What model and targets want of batches."""
    workplace: Workplace
    ranks: Ranks
    num_local_ranks: int
    """Ranks of this node, which share its memory."""
    spans: SpanLog
    packs_dirs: tuple[Path, ...]

    @property
    def gpu(self) -> torch.device | None:
        """For which batches are pinned."""
        return self.workplace.device if self.workplace.device.type == "cuda" else None


@contextmanager
def leaving_no_trace() -> Iterator[None]:
    """What draws at random within (dropout) goes on after it as if nothing had been drawn."""
    before = rng_state()
    try:
        yield
    finally:
        set_rng_state(before)


def time_step(
    batches: Sequence[Batch],
    *,
    model: nn.Module,
    layout: ImageLayout,
    strategy: Strategy,
    workplace: Workplace,
) -> float:
    """Seconds of forward and backward; gradients are thrown away, nothing is learned.

    `model` is that of `Spread`, `layout` how it takes images.
    """
    start_s = time.perf_counter()
    for number, batch in enumerate(batches, start=1):
        inputs = to_device(batch, workplace, layout)
        with strategy.microbatch(model, is_last=number == len(batches)):
            with strategy.forward_context():
                loss = loss_of(model, inputs)
            loss.backward()
    if workplace.device.type == "cuda":
        torch.cuda.synchronize(workplace.device)  # SYNC: what is timed must have ended
    spent_s = time.perf_counter() - start_s
    model.zero_grad()
    return spent_s


def time_trial(trial: Trial, batches: Sequence[Batch]) -> float:
    """`time_step` of the trial's model; a collective."""
    return time_step(
        batches,
        model=trial.spread.model,
        layout=trial.spread.bare.layout,
        strategy=trial.strategy,
        workplace=trial.workplace,
    )
