"""How much of a node's memory is the job's, and how much of it this process has taken."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from slurm_jobs.common.machine import memory_bytes

_MB = 1 << 20
"""What Slurm counts memory in."""
_SLURM_PAIRS = (
    ("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"),
    ("SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"),
)
"""Memory of one, and how many there are on this node."""


def job_memory_bytes() -> int:
    """Of this node: the least of what Slurm gave the job, cgroups allow and the machine has.

    Raises:
        OSError: nothing of these can be read.
    """
    cgroups = cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    limits = [slurm_limit(os.environ), memory_bytes(), *cgroups]
    known = [limit for limit in limits if limit is not None]
    if not known:
        message = "neither Slurm nor the kernel says how much memory there is"
        raise OSError(message)
    return min(known)


def slurm_limit(environment: Mapping[str, str]) -> int | None:
    """What Slurm gave the job on this node, in bytes; None without a word, or if it gave all."""
    whole = environment.get("SLURM_MEM_PER_NODE")
    if whole is not None:
        return int(whole) * _MB or None
    for each, number in _SLURM_PAIRS:
        if each in environment and number in environment:
            return int(environment[each]) * int(environment[number]) * _MB or None
    return None


def cgroup_limits(own: Path, root: Path) -> Iterator[int]:
    """The limits of this process's cgroups and of those around them, in bytes; of both versions.

    Args:
        own: `/proc/self/cgroup`.
        root: Where cgroups are mounted.
    """
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _limits(root, path, "memory.max")
            elif "memory" in controllers.split(","):
                yield from _limits(root / "memory", path, "memory.limit_in_bytes")


def _limits(root: Path, path: str, name: str) -> Iterator[int]:
    """Those that are there: in a container the path may be that of the host."""
    here = root / path.lstrip("/")
    for folder in (here, *here.parents):
        if not folder.is_relative_to(root):
            return
        with suppress(OSError, ValueError):  # ValueError: "max", which is no limit
            yield int((folder / name).read_text())


def resident_bytes(status: Path = Path("/proc/self/status")) -> int:
    """What this process holds of memory that no file stands behind."""
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
    assert found is not None  # of every kernel since 4.5
    return int(found[1]) * 1024
