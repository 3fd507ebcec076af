"""Passes before a training's first step, to measure time and memory; nothing is learned."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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

_TRAINED = (
    *("model", "adapters", "quantize", "learn", "levels"),
    *("global_batch_size", "num_lanes", "batching", "seed"),
)
"""Fields of the config that affect passes and checkpoints: none of `MAY_CHANGE`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Inputs of a trial."""

    config: TrainConfig
    dataset: ShardedDataset
    strategy: Strategy
    spread: Spread
    needs: ModelNeeds
    """Requirements of model and targets for batches."""
    workplace: Workplace
    ranks: Ranks
    num_local_ranks: int
    """Ranks of this node, which share its memory."""
    spans: SpanLog
    packs_dirs: tuple[Path, ...]

    @property
    def way(self) -> dict[str, Any]:
        """Arguments of `learn_nothing` for passing microbatches through the model."""
        return {
            "model": self.spread.model,
            "layout": self.spread.bare.layout,
            "strategy": self.strategy,
            "workplace": self.workplace,
        }

    def describe(self, *more: str) -> dict[str, Any]:
        """Describe the training, as JSON, to compare with that of a stored choice.

        `more`: Further fields of the config.
        """
        values = asdict(self.config)
        config = {name: values[name] for name in (*_TRAINED, *more)}
        return {"config": config, "dataset": self.dataset.info.fingerprint}

    @property
    def gpu(self) -> torch.device | None:
        """GPU for which batches are pinned."""
        return self.workplace.device if self.workplace.device.type == "cuda" else None


@contextmanager
def leaving_no_trace(device: torch.device) -> Iterator[None]:
    """Restore the random number generators of `device` (for dropout) at the end of the block."""
    before = rng_state(device)
    try:
        yield
    finally:
        set_rng_state(before)


def learn_nothing(
    batch: Batch,
    *,
    is_last: bool,
    model: nn.Module,
    layout: ImageLayout,
    strategy: Strategy,
    workplace: Workplace,
) -> None:
    """Run forward and backward of a microbatch; keep its gradients.

    `model` is that of `Spread`, `layout` its image layout; `is_last` in its step.
    """
    inputs = to_device(batch, workplace, layout)
    with strategy.microbatch(model, is_last=is_last):
        with strategy.forward_context():
            loss = loss_of(model, inputs)
        loss.backward()


def time_step(
    batches: Sequence[Batch],
    *,
    model: nn.Module,
    layout: ImageLayout,
    strategy: Strategy,
    workplace: Workplace,
) -> float:
    """Return seconds of forward and backward; gradients are discarded, nothing is learned.

    `model` is that of `Spread`, `layout` its image layout.
    """
    start_s = time.perf_counter()
    for number, batch in enumerate(batches, start=1):
        learn_nothing(
            batch,
            is_last=number == len(batches),
            model=model,
            layout=layout,
            strategy=strategy,
            workplace=workplace,
        )
    if workplace.device.type == "cuda":
        torch.cuda.synchronize(workplace.device)  # SYNC: the timed work must have ended
    spent_s = time.perf_counter() - start_s
    model.zero_grad()
    return spent_s
