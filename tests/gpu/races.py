"""Copies that run while kernels do must bring the bytes of their own batch."""

from __future__ import annotations

from collections import deque
from typing import Any
from unittest import mock

import torch

from pipeline.data.batch import Batch, collate
from pipeline.data.batches import buffer_pool
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.train import loop
from pipeline.train.loop import CopyAhead
from pipeline.train.training_data import batches
from tests.gpu.models import open_tiny, train, train_config
from tests.gpu.work import Work

_SLOW_CYCLES = 20_000_000
"""About 10 ms of a GPU: longer than all copies of a batch."""


def copies(work: Work) -> None:
    """Copy batches ahead from few buffers while kernels are slow, and compare all bytes."""
    kind = open_tiny("qwen2_5_vl", work.shared)
    model, samples = kind.build(), [sample for sample in kind.samples() if sample.images]
    pool = BufferPool(pin_memory=work.has_gpu)
    ahead = CopyAhead(work.torch_device)

    def make(number: int) -> Batch:
        return collate(
            [[samples[number % len(samples)]]],
            rule=kind.dataset.rule,
            needs=model.layout.needs,
            image_token_id=kind.facts.info.image_token_id,
            pad_token_id=kind.facts.info.pad_token_id,
            epoch=0,
            buffers=pool,
            pin_memory=work.has_gpu,
        )

    num = 8 if work.is_short else 60
    expected, arrived = [], []
    held: deque[tuple[Batch, torch.Event]] = deque()
    batch = make(0)
    for number in range(num):
        copied = ahead.take(batch)
        expected.append((batch.pixels.clone(), batch.input_ids.clone()))
        following = make(number + 1)
        ahead.begin(following)
        if work.has_gpu:
            torch.cuda._sleep(_SLOW_CYCLES)
        assert copied.images is not None
        arrived.append((copied.images.pixels.clone(), copied.inputs.input_ids.clone()))
        held.append((batch, torch.get_device_module(work.device).Event()))
        held[-1][1].record()
        if len(held) > 1:  # as the loop: the host is a step ahead of what it drops
            held.popleft()[1].synchronize()
        batch = following
    wrong = [
        number
        for number, (sent, got) in enumerate(zip(expected, arrived, strict=True))
        if not all(torch.equal(a, b.cpu()) for a, b in zip(sent, got, strict=True))
    ]
    work.note(num_batches=num, num_free_buffers=pool.num_free)
    work.check("every batch arrived with its own bytes", not wrong, f"wrong: {wrong}")
    if not work.is_short:
        _overwritten(work, kind)


def _overwritten(work: Work, kind: Any) -> None:
    """Train from buffers that are filled with other bytes as soon as they are free.

    The device is behind the host by a slow kernel a step, and verdicts are read a step late: a
    batch that is given up before it was copied would change the losses.
    """
    give_back, losses_of = buffer_pool._Lease.__del__, batches.losses_of

    def overwrite(self: Any) -> None:
        self._buffer.fill_(255)
        give_back(self)

    def slow_losses_of(*args: Any) -> Any:
        if work.has_gpu:
            torch.cuda._sleep(_SLOW_CYCLES)
        return losses_of(*args)

    config = train_config(kind, work, num_steps=12)
    plain = train(work.folder / "plain", config)
    with (
        mock.patch.object(buffer_pool._Lease, "__del__", overwrite),
        mock.patch.object(loop, "losses_of", slow_losses_of),
    ):
        found = train(work.folder / "overwritten", config)
    work.check("buffers that are free may be overwritten", found.losses == plain.losses)
