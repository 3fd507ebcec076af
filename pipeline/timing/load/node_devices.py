"""Disks, network cards and InfiniBand ports of a node; determined once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.machine import mount_of

_SYS = Path("/sys")


def whole_disks(sys: Path = _SYS) -> Sequence[str]:
    """Return physical disks as `major:minor`: no partitions, RAID or LVM devices."""
    devices = sorted((sys / "block").glob("*/device"))
    return [(path.parent / "dev").read_text().strip() for path in devices]


def disk_behind(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Return the block device of a folder's file system, as `major:minor`.

    None if it has no single device: a network file system, memory, or several disks.
    """
    device = folder.stat().st_dev
    if os.major(device):
        return f"{os.major(device)}:{os.minor(device)}"
    # btrfs and others use their own device numbers; the mount table names the disk.
    source = mount_of(mounts.read_text(), folder.resolve()).source
    with suppress(OSError):
        if source.startswith("/dev/"):
            number = Path(source).stat().st_rdev
            return f"{os.major(number)}:{os.minor(number)}"
    return None


def infiniband_ports(sys: Path = _SYS) -> Sequence[Path]:
    """Return the counter folder of each port."""
    return sorted((sys / "class/infiniband").glob("*/ports/*/counters"))
