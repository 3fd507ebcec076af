"""Memory for the pixels of batches, used again as soon as nobody holds it.

Fresh memory costs a page fault for every 4 KiB, which is slower than the copy
into it, and pinning it costs more still. So each buffer comes back to the pool
when the last array or tensor that looks at it is gone. Of batches
that grow the pool keeps no more buffers than were ever held at once.
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
"""A buffer is not given to whoever needs less than this share of it."""


class BufferPool:
    """Gives out arrays of bytes; may be used from several threads.

    With `pin_memory` a GPU can copy from them while the host goes on. Whoever starts such a copy
    holds the array until it is done: the pool knows of Python's references alone.
    """

    def __init__(self, *, pin_memory: bool) -> None:
        self._pin_memory = pin_memory
        self._free: deque[torch.Tensor] = deque()
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> np.ndarray:
        """Uninitialised uint8 [num_bytes]."""
        buffer = self._find(num_bytes)
        if buffer is None:
            buffer = _allocate(_round_up(num_bytes), pin_memory=self._pin_memory)
        return np.asarray(_Lease(self._free, buffer, num_bytes))

    @property
    def num_free(self) -> int:
        """Buffers that nobody holds."""
        return len(self._free)

    def _find(self, num_bytes: int) -> torch.Tensor | None:
        """The smallest free buffer that is large enough, and not much too large.

        Where there is none, the smallest of those that are too small makes room for the one that
        is to be allocated: else batches that grow would leave one buffer of each size behind.
        """
        most = max(_MOST_WASTE * num_bytes, _SMALLEST_BYTES)
        with self._lock:  # who drops arrays meanwhile adds to the right end, and needs no lock
            free = sorted((self._free.popleft() for _ in range(len(self._free))), key=len)
            fitting = (n for n, buffer in enumerate(free) if num_bytes <= len(buffer) <= most)
            number = next(fitting, None)
            found = None if number is None else free.pop(number)
            if found is None and free and len(free[0]) < num_bytes:
                del free[0]
            self._free.extend(free)
        return found


def _allocate(num_bytes: int, *, pin_memory: bool) -> torch.Tensor:
    """Uninitialised uint8 [num_bytes], in huge pages where the kernel has them.

    A copy into pages of 4 KiB takes a sixth longer. Memory of our own is pinned, because torch
    rounds what it allocates pinned up to a power of two. The calling thread has the GPU as its
    current device: see `make_pool`.
    """
    mapped = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        mapped.madvise(mmap.MADV_HUGEPAGE)
    buffer = torch.frombuffer(mapped, dtype=torch.uint8)  # keeps it mapped
    if pin_memory:
        # A fork would have this process write to new pages, and the GPU read the old ones.
        mapped.madvise(mmap.MADV_DONTFORK)
        _pin_memory_utils.pin_memory(buffer.data_ptr(), num_bytes)
        unpin = weakref.finalize(buffer, _pin_memory_utils.unpin_memory, buffer.data_ptr())
        unpin.atexit = False  # the CUDA context may be gone by then
    return buffer


def _round_up(num_bytes: int) -> int:
    """To an eighth of the next smaller power of two, so that batches of like size share buffers."""
    step = max(_SMALLEST_BYTES, 1 << max(0, num_bytes.bit_length() - 4))
    return max(1, -(-num_bytes // step)) * step


class _Lease:
    """What an array over a buffer has as its base; its end gives the buffer back."""

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
