"""Whether a file lies on this machine's own disks or memory, or comes over a network."""

from __future__ import annotations

import functools
import os
from pathlib import Path

_OF_THIS_MACHINE = frozenset({"ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs"})


def is_on_this_machine(path: Path) -> bool:
    """Whether the file system that `path` lies on is certainly no network's.

    Others, whatever they are, may lose a file under its reader; a memory map of such a file ends
    the process with SIGBUS.
    """
    return _type_of(os.stat(path).st_dev) in _OF_THIS_MACHINE  # noqa: PTH116 - one call a shard


@functools.lru_cache(maxsize=64)
def _type_of(device: int) -> str:
    """The type by which the device is mounted; empty where none is found."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return after.split()[0]
    return ""
