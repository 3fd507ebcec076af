"""Passes before a training's first step, to measure time and memory; nothing is learned."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from pipeline.data.batch import Batch
from pipeline.models.layouts.image_layout import ImageLayout
from pipeline.train.checkpoints.generator_state import rng_state, set_rng_state
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.strategies.strategy import Strategy
from pipeline.train.training_data.batches import loss_of, to_device


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
    rank_device: RankDevice,
) -> None:
    """Run forward and backward of a microbatch; keep its gradients.

    `model` is that of `ParallelModel`, `layout` its image layout; `is_last` in its step.
    """
    inputs = to_device(batch, rank_device, layout)
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
    rank_device: RankDevice,
) -> float:
    """Return seconds of forward and backward; gradients are discarded, nothing is learned.

    `model` is that of `ParallelModel`, `layout` its image layout.
    """
    start_s = time.perf_counter()
    for number, batch in enumerate(batches, start=1):
        learn_nothing(
            batch,
            is_last=number == len(batches),
            model=model,
            layout=layout,
            strategy=strategy,
            rank_device=rank_device,
        )
    if rank_device.device.type == "cuda":
        torch.cuda.synchronize(rank_device.device)  # SYNC: the timed work must have ended
    spent_s = time.perf_counter() - start_s
    model.zero_grad()
    return spent_s
