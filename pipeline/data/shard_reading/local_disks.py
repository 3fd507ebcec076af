"""Test for files on this machine's own disks or memory, as opposed to network file systems."""

from __future__ import annotations

import functools
import os
from pathlib import Path

_OF_THIS_MACHINE = frozenset({"ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs"})


def is_on_this_machine(path: Path) -> bool:
    """Return True if `path` is certainly on a local file system.

    Network file systems may lose a file while it is read; a memory map of such a file ends the
    process with SIGBUS.
    """
    return _type_of(os.stat(path).st_dev) in _OF_THIS_MACHINE  # noqa: PTH116 - one call a shard


@functools.lru_cache(maxsize=64)
def _type_of(device: int) -> str:
    """Return the file system type of a mounted device; empty if unknown."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return after.split()[0]
    return ""
