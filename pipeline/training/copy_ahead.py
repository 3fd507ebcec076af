"""Copy of the next microbatch to the device while the model computes on the current one.

On a GPU the copies have their own stream, so they run in parallel with kernels. On a CPU
nothing is copied, and PyTorch's CPU streams do nothing.
"""

from __future__ import annotations

import torch

from pipeline.data.batch import Batch
from pipeline.training.batches import Copied, copy_batch


class CopyAhead:
    """Copies one microbatch at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module = torch.get_device_module(device)
        self._stream = self._module.Stream()
        self._batch: Batch | None = None
        self._copied: Copied | None = None

    def begin(self, batch: Batch) -> None:
        """Queue the copies of a microbatch; no SYNC.

        Call it after the previous microbatch was taken, and before the model's computation on
        that one is queued. Copies wait for all work queued so far, because the device may reuse
        its memory for them. They run in parallel with later work.
        """
        self._stream.wait_stream(self._module.current_stream())
        with self._module.stream(self._stream):
            self._copied = copy_batch(batch, self._device)
        self._batch = batch  # kept while it is copied from

    def take(self, batch: Batch) -> Copied:
        """Return the microbatch for use on the device; copied now unless `begin` did it."""
        if self._batch is not batch or self._copied is None:
            self.begin(batch)
        self._module.current_stream().wait_stream(self._stream)
        copied, self._batch, self._copied = self._copied, None, None
        assert copied is not None
        return copied
