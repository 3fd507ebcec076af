"""Memory limit of the job on a node: from Slurm, from the kernel's cgroups, or all of it.

And the memory that this process uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.base.machine import available_memory_bytes, memory_bytes

_MIB = 2**20
"""Slurm's megabyte."""
_SLURM_PAIRS = (
    ("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"),
    ("SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"),
)
"""Variables of the memory per unit, and of the number of units on this node."""
_CGROUP_FILES = {"": "memory.max", "memory": "memory/memory.limit_in_bytes"}
"""File by controller in /proc/self/cgroup: version 2, and 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostMemory:
    """Memory of a node."""

    limit_bytes: int
    """Limit for all ranks of the job here together."""
    source: str
    """Source of the limit."""
    available_bytes: int
    """Memory that is free without swapping."""


def read_host_memory(variables: Mapping[str, str]) -> HostMemory:
    """Read this node's limit; `variables` are those of the environment."""
    limits = {
        **slurm_limits(variables),
        **dict(cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))),
    }
    if (all_bytes := memory_bytes()) is not None:
        limits["the node's memory"] = all_bytes
    available_bytes = available_memory_bytes()
    source = min(limits, key=limits.__getitem__, default="")
    return HostMemory(
        limit_bytes=limits.get(source, available_bytes),
        source=source or "what is available now",
        available_bytes=available_bytes,
    )


def slurm_limits(variables: Mapping[str, str]) -> dict[str, int]:
    """Return bytes from Slurm on this node, by the variable that states them; 0 means all."""

    def number(name: str) -> int:
        value = variables.get(name, "")
        return int(value) if value.isdigit() else 0

    limits = {"SLURM_MEM_PER_NODE": number("SLURM_MEM_PER_NODE")}
    limits |= {each: number(each) * number(how_many) for each, how_many in _SLURM_PAIRS}
    return {name: megabytes * _MIB for name, megabytes in limits.items() if megabytes}


def cgroup_limits(own_group: Path, root: Path) -> Iterator[tuple[str, int]]:
    """Yield bytes that the process's cgroups allow, by file.

    Limits of parent groups count as well. In a container the path in `own_group` is the host's, and
    the visible part of it is mounted at the root.

    `own` is /proc/self/cgroup, `root` the mount point of cgroups.
    """
    lines: list[str] = []
    with suppress(OSError):
        lines = own_group.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller, file in _CGROUP_FILES.items():
            if controller not in controllers.split(","):
                continue
            folder, _, name = file.rpartition("/")
            top = root / folder
            group = top / path.lstrip("/")
            for place in (group, *group.parents):
                if place.is_relative_to(top) and (value := _read_number(place / name)) is not None:
                    yield str(place / name), value


def _read_number(file: Path) -> int | None:
    """Read a limit; None if the file does not exist or there is no limit (`max`)."""
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return None


def resident_bytes(status: Path = Path("/proc/self/status")) -> int:
    """Return memory of this process that is not backed by a file."""
    match = re.search(r"^RssAnon:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
    assert match is not None  # of every kernel since 4.5
    return int(match[1]) * 1024
