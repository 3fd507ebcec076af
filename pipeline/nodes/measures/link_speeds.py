"""Link speeds of a node from the kernel: network cards and InfiniBand ports."""

from __future__ import annotations

from pathlib import Path

from pipeline.nodes.measures.measurement import Measurement, not_measured
from slurm_jobs.base.machine import network_links

_SYS = Path("/sys")


def measure_links(sys: Path = _SYS) -> Measurement:
    """Return the speed of the fastest active link; nothing is sent."""
    try:
        links = network_links(sys)
    except OSError as error:
        return not_measured("link", f"{sys}/class/net cannot be read: {error.strerror}")
    speeds = [link["bits_per_s"] for link in links if link["is_up"] and link["bits_per_s"]]
    if not speeds:
        names = ", ".join(link["name"] for link in links) or "there is none"
        reason = f"no network interface says its speed ({names}): virtual ones do not"
        return not_measured("link", reason, links)
    return Measurement(numbers={"link_bits_per_s": max(speeds)}, details={"link": links})
