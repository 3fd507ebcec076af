"""Pool of memory for the pixels of batches, reused once it has no reference.

Fresh memory costs a page fault for every 4 KiB, which is slower than the copy into it, and
pinning it costs even more. So each buffer returns to the pool when the last array or tensor
over it is gone. When batches grow, the pool keeps no more buffers than were ever in use at
once.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from collections import deque

import numpy as np
import torch
from torch.cuda import _pin_memory_utils

_SMALLEST_BYTES = 1 << 20


_MOST_WASTE = 4
"""A request for less than 1/4 of a buffer does not get it."""


class BufferPool:
    """Pool of byte arrays; may be used from several threads.

    With `pin_memory` a GPU can copy from them asynchronously. Keep a reference to the array
    until such a copy is done: the pool sees only Python's references.
    """

    def __init__(self, *, pin_memory: bool) -> None:
        self._pin_memory = pin_memory
        self._free: deque[torch.Tensor] = deque()
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> np.ndarray:
        """Return uninitialised uint8 [num_bytes].

        Takes the smallest free buffer that is large enough and not much too large. If there is
        none, the smallest free buffer is dropped to make room for a new one; otherwise growing
        batches would leave one buffer of each size behind.
        """
        most = max(_MOST_WASTE * num_bytes, _SMALLEST_BYTES)
        with self._lock:  # other threads append on the right, without a lock
            free = sorted((self._free.popleft() for _ in range(len(self._free))), key=len)
            fitting = (n for n, buffer in enumerate(free) if num_bytes <= len(buffer) <= most)
            number = next(fitting, None)
            buffer = None if number is None else free.pop(number)
            if buffer is None and free and len(free[0]) < num_bytes:
                del free[0]
            self._free.extend(free)
        if buffer is None:
            # An eighth of the next smaller power of two: similar batches share buffers.
            step = max(_SMALLEST_BYTES, 1 << max(0, num_bytes.bit_length() - 4))
            num_steps = max(1, -(-num_bytes // step))
            buffer = _allocate(num_steps * step, pin_memory=self._pin_memory)
        return np.asarray(_Lease(self._free, buffer, num_bytes))

    @property
    def num_free(self) -> int:
        """Buffers without a reference."""
        return len(self._free)


def _allocate(num_bytes: int, *, pin_memory: bool) -> torch.Tensor:
    """Return uninitialised uint8 [num_bytes], in huge pages where the kernel has them.

    A copy into pages of 4 KiB takes a sixth longer. The memory is allocated here and then
    pinned, because torch rounds pinned allocations up to a power of two. The calling thread
    must have the GPU as its current device: see `make_pool`.
    """
    mapped = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # kernel without huge pages
        mapped.madvise(mmap.MADV_HUGEPAGE)
    buffer = torch.frombuffer(mapped, dtype=torch.uint8)  # keeps it mapped
    if pin_memory:
        # After a fork this process would write to new pages, and the GPU would read the old ones.
        mapped.madvise(mmap.MADV_DONTFORK)
        _pin_memory_utils.pin_memory(buffer.data_ptr(), num_bytes)
        unpin = weakref.finalize(buffer, _pin_memory_utils.unpin_memory, buffer.data_ptr())
        unpin.atexit = False  # the CUDA context may be gone already
    return buffer


class _Lease:
    """Base object of an array over a buffer; its finalizer returns the buffer to the pool."""

    __slots__ = ("__array_interface__", "_buffer", "_free")

    def __init__(self, free: deque[torch.Tensor], buffer: torch.Tensor, num_bytes: int) -> None:
        self._free, self._buffer = free, buffer
        self.__array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (buffer.data_ptr(), False),
            "version": 3,
        }

    def __del__(self) -> None:
        # No lock: this may run in any thread at any allocation. deque.append is atomic.
        self._free.append(self._buffer)
