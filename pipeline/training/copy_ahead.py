"""The next microbatch is copied to the device while the model computes on this one.

On a GPU copies queue in a stream of their own, so that they run beside kernels. On a CPU nothing
is copied, and PyTorch's streams of it do nothing.
"""

from __future__ import annotations

import torch

from pipeline.data.batch import Batch
from pipeline.training.batches import Copied, copy_batch


class CopyAhead:
    """One microbatch at a time is on its way."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module = torch.get_device_module(device)
        self._stream = self._module.Stream()
        self._batch: Batch | None = None
        self._copied: Copied | None = None

    def begin(self, batch: Batch) -> None:
        """Queue its copies; no SYNC.

        Call it when the microbatch before it was taken, and before what the model computes on that
        is queued: copies wait for all that is queued so far, because the device may have given
        them memory that it reads. They run beside whatever is queued later.
        """
        self._stream.wait_stream(self._module.current_stream())
        with self._module.stream(self._stream):
            self._copied = copy_batch(batch, self._device)
        self._batch = batch  # held while it is copied from

    def take(self, batch: Batch) -> Copied:
        """What the device may use from here on; copied now, if it was not begun."""
        if self._batch is not batch or self._copied is None:
            self.begin(batch)
        self._module.current_stream().wait_stream(self._stream)
        copied, self._batch, self._copied = self._copied, None, None
        assert copied is not None
        return copied
