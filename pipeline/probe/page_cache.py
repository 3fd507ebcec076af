"""The page cache: have the kernel let go of a file, and ask how much of it it still holds."""

from __future__ import annotations

import ctypes
import mmap
import os

COLD_SHARE = 0.05
"""At most so much of a file in the page cache, and reading it times the disk, not the memory."""

_MAP_FAILED = ctypes.c_void_p(-1).value


def drop_from_cache(fd: int) -> float | None:
    """Ask the kernel to let go of a file's pages; what is not written yet is written first.

    Returns:
        The share that stays in memory (all of it on file systems in memory, such as tmpfs); None
        where the kernel does not say.

    Raises:
        OSError: writing failed.
    """
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_share(fd)


def resident_share(fd: int) -> float | None:
    """Share of a file's pages that are in memory, by mincore(2); None where it cannot be told."""
    num_bytes = os.fstat(fd).st_size
    if num_bytes == 0:
        return 0.0
    libc, size = ctypes.CDLL(None), ctypes.c_size_t(num_bytes)
    libc.mmap.restype = ctypes.c_void_p
    # Not Python's mmap: ctypes takes no address of a map that is read-only.
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    if address in {None, _MAP_FAILED}:
        return None
    flags = (ctypes.c_ubyte * -(-num_bytes // mmap.PAGESIZE))()
    try:
        failed = libc.mincore(ctypes.c_void_p(address), size, flags)
    finally:
        libc.munmap(ctypes.c_void_p(address), size)
    return None if failed else sum(flag & 1 for flag in bytes(flags)) / len(flags)
