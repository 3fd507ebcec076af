"""Which disks, network cards and InfiniBand ports a node has; looked up once."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_jobs.common.machine import mount_of, network_cards

_SYS = Path("/sys")
_RATE = re.compile(r"([\d.]+) Gb/sec")


def whole_disks(sys: Path = _SYS) -> Sequence[str]:
    """Real disks as `major:minor`: no partitions, and nothing that lies on others (RAID, LVM)."""
    found = sorted((sys / "block").glob("*/device"))
    return [(path.parent / "dev").read_text().strip() for path in found]


def disk_behind(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The block device that a folder's file system lies on, as `major:minor`.

    None where it lies on none: a network file system, memory, or several disks.
    """
    device = folder.stat().st_dev
    if os.major(device):
        return f"{os.major(device)}:{os.minor(device)}"
    # btrfs and others number their file systems themselves; the table of mounts names the disk.
    source = mount_of(mounts.read_text(), folder.resolve()).source
    with suppress(OSError):
        if source.startswith("/dev/"):
            number = Path(source).stat().st_rdev
            return f"{os.major(number)}:{os.minor(number)}"
    return None


def infiniband_ports(sys: Path = _SYS) -> Sequence[Path]:
    """Folders with the counters of each port."""
    return sorted((sys / "class/infiniband").glob("*/ports/*/counters"))


def read_links(sys: Path = _SYS) -> list[dict[str, Any]]:
    """Network cards and InfiniBand ports: `name`, `is_up`, and `bits_per_s`, None where unknown.

    Raises:
        OSError: the kernel does not say which there are.
    """
    links = [_card(sys / "class/net" / name) for name in network_cards(sys)]
    return [*links, *map(_port, sorted((sys / "class/infiniband").glob("*/ports/*")))]


def _card(folder: Path) -> dict[str, Any]:
    megabits = _text(folder / "speed")
    known = megabits.isdecimal() and int(megabits) > 0  # -1 where the link is down or virtual
    return {
        "name": folder.name,
        "is_up": _text(folder / "operstate") in {"up", "unknown"},
        "bits_per_s": int(megabits) * 1e6 if known else None,
    }


def _port(folder: Path) -> dict[str, Any]:
    rate = _RATE.match(_text(folder / "rate"))
    return {
        "name": f"{folder.parent.parent.name} port {folder.name}",
        "is_up": "ACTIVE" in _text(folder / "state"),
        "bits_per_s": float(rate[1]) * 1e9 if rate else None,
    }


def _text(path: Path) -> str:
    """Of a file of sysfs; empty where the driver does not say (EINVAL of an interface)."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
