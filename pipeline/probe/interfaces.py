"""How fast the links of a node are, as the kernel says: network cards and InfiniBand ports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.probe.measured import Measured, not_measured
from slurm_jobs.common.machine import network_cards

_SYS = Path("/sys")
_RATE = re.compile(r"([\d.]+) Gb/sec")


def measure_links(sys: Path = _SYS) -> Measured:
    """The speed of the fastest link that is up; nothing is sent."""
    try:
        names = network_cards(sys)
    except OSError as error:
        return not_measured("link", f"{sys}/class/net cannot be read: {error.strerror}")
    links = [_card(sys / "class/net" / name) for name in names]
    links += [_port(path) for path in sorted((sys / "class/infiniband").glob("*/ports/*"))]
    speeds = [link["bits_per_s"] for link in links if link["is_up"] and link["bits_per_s"]]
    if not speeds:
        told = ", ".join(link["name"] for link in links) or "there is none"
        reason = f"no network interface says its speed ({told}): virtual ones do not"
        return not_measured("link", reason, links)
    return Measured(numbers={"link_bits_per_s": max(speeds)}, details={"link": links})


def _card(folder: Path) -> Mapping[str, Any]:
    megabits = _text(folder / "speed")
    known = megabits.isdecimal() and int(megabits) > 0  # -1 where the link is down or virtual
    return {
        "name": folder.name,
        "is_up": _text(folder / "operstate") in {"up", "unknown"},
        "bits_per_s": int(megabits) * 1e6 if known else None,
    }


def _port(folder: Path) -> Mapping[str, Any]:
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
