"""Page cache: make the kernel drop a file, and query how much of it is still cached."""

from __future__ import annotations

import ctypes
import mmap
import os

COLD_SHARE = 0.05
"""Largest cached share of a file with which reading still measures the disk."""
_MAP_FAILED = ctypes.c_void_p(-1).value


def drop_from_cache(fd: int) -> float | None:
    """Make the kernel drop a file's pages, after writing dirty ones.

    Returns:
        The share that stays in memory (all on file systems in memory, such as tmpfs); None
        if the kernel does not report it.

    Raises:
        OSError: writing failed.
    """
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_share(fd)


def resident_share(fd: int) -> float | None:
    """Return the share of a file's pages in memory, by mincore(2); None if unknown."""
    num_bytes = os.fstat(fd).st_size
    if num_bytes == 0:
        return 0.0
    libc, size = ctypes.CDLL(None), ctypes.c_size_t(num_bytes)
    libc.mmap.restype = ctypes.c_void_p
    # Not Python's mmap: ctypes cannot take the address of a read-only map.
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    if address in {None, _MAP_FAILED}:
        return None
    flags = (ctypes.c_ubyte * -(-num_bytes // mmap.PAGESIZE))()
    try:
        failed = libc.mincore(ctypes.c_void_p(address), size, flags)
    finally:
        libc.munmap(ctypes.c_void_p(address), size)
    return None if failed else sum(flag & 1 for flag in bytes(flags)) / len(flags)
