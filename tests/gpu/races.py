"""Copies that run while kernels do must bring the bytes of their own batch."""

from __future__ import annotations

import torch

from pipeline.data.batch import Batch, collate
from pipeline.data.buffers import BufferPool
from pipeline.training.copy_ahead import CopyAhead
from tests.gpu.models import open_tiny
from tests.gpu.work import Work

_SLOW_CYCLES = 20_000_000
"""About 10 ms of a GPU: longer than all copies of a batch."""


def copies(work: Work) -> None:
    """Copy batches ahead from few buffers while kernels are slow, and compare all bytes."""
    kind = open_tiny("qwen2_5_vl", work.shared)
    model, samples = kind.build(), [sample for sample in kind.samples() if sample.images]
    pool = BufferPool(pin_memory=work.has_gpu)
    ahead = CopyAhead(torch.device(work.device))

    def make(number: int) -> Batch:
        return collate(
            [[samples[number % len(samples)]]],
            rule=kind.dataset.rule,
            needs=model.layout.needs,
            pad_token_id=kind.facts.info.pad_token_id,
            epoch=0,
            buffers=pool,
            pin_memory=work.has_gpu,
        )

    num = 8 if work.is_short else 60
    expected, arrived = [], []
    batch = make(0)
    for number in range(num):
        copied = ahead.take(batch)
        expected.append((batch.pixels.clone(), batch.input_ids.clone()))
        batch = make(number + 1)  # the last is dropped: its buffer may be written again
        ahead.begin(batch)
        if work.has_gpu:
            torch.cuda._sleep(_SLOW_CYCLES)
        assert copied.images is not None
        arrived.append((copied.images.pixels.clone(), copied.input_ids.clone()))
    wrong = [
        number
        for number, (sent, got) in enumerate(zip(expected, arrived, strict=True))
        if not all(torch.equal(a, b.cpu()) for a, b in zip(sent, got, strict=True))
    ]
    work.note(num_batches=num, num_free_buffers=pool.num_free)
    work.check("every batch arrived with its own bytes", not wrong, f"wrong: {wrong}")
