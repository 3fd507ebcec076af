"""Processes of this job on this node: their processor time, memory and cores.

They are those of this rank's session: Slurm starts all ranks of a step on a node in one
session, the local scheduler all ranks of a task. Finding them requires scanning all processes
of the node, so it is done rarely, and the more rarely the longer it takes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.timing.load.kernel_counters import Increase

_SCAN_EVERY_S = 30.0
_SCAN_SHARE = 1e-3
"""Limit of the scan time, as a share of one core."""
_NOT_OURS = frozenset({"slurmstepd"})
"""In the session, but may use every core of the node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessStat:
    """Fields of /proc/PID/stat, see proc(5)."""

    name: str
    session: int
    cpu_ticks: int
    start_ticks: int
    resident_pages: int


def parse_stat(text: str) -> ProcessStat:
    """Parse /proc/PID/stat; the name, in brackets, may contain anything."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()  # from the state on, the third field there
    return ProcessStat(
        name=head.partition("(")[2],
        session=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        resident_pages=int(fields[21]),
    )


class JobProcesses:
    """Reads `job_cpu_s_per_s` and `job_resident_bytes`."""

    def __init__(
        self,
        *,
        session: int | None = None,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
        affinity: Callable[[int], Collection[int]] = os.sched_getaffinity,
    ) -> None:
        self._session = os.getsid(0) if session is None else session
        self._proc, self._clock, self._affinity = proc, clock, affinity
        self._pids: list[int] = []
        self._cores: frozenset[int] = frozenset(affinity(0))
        self._next_scan_s = -float("inf")
        self._increase = Increase()
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def cores(self) -> Collection[int]:
        """Return the cores that any known process may use: ranks have different ones."""
        return self._cores

    def read(self, interval_s: float) -> Mapping[str, float]:
        """Return the rates; a process counts from the first reading after its discovery."""
        if self._clock() >= self._next_scan_s:
            self.scan()
        stats = {pid: stat for pid in self._pids if (stat := self._stat(pid)) is not None}
        grown = self._increase.see(
            {(pid, stat.start_ticks): [stat.cpu_ticks] for pid, stat in stats.items()}
        )
        values = {
            "job_resident_bytes": float(
                self._page_bytes * sum(stat.resident_pages for stat in stats.values())
            )
        }
        if grown is not None and interval_s > 0:
            values["job_cpu_s_per_s"] = grown[0] * self._tick_s / interval_s
        return values

    def scan(self) -> None:
        """Find the processes and the cores that they may use."""
        begun_s = self._clock()
        self._pids, cores = [], set(self._affinity(0))
        for name in os.listdir(self._proc):  # noqa: PTH208 - Path.iterdir costs twice the time
            stat = self._stat(int(name)) if name.isdecimal() else None
            if stat is None or stat.session != self._session or stat.name in _NOT_OURS:
                continue
            self._pids.append(int(name))
            with suppress(OSError):  # it has ended meanwhile
                cores |= set(self._affinity(int(name)))
        self._cores = frozenset(cores)
        now_s = self._clock()
        self._next_scan_s = now_s + max(_SCAN_EVERY_S, (now_s - begun_s) / _SCAN_SHARE)

    def _stat(self, pid: int) -> ProcessStat | None:
        """Read a process's fields; None if it no longer exists."""
        with suppress(OSError), open(f"{self._proc}/{pid}/stat", errors="replace") as stream:  # noqa: PTH123 - once a process of the node
            return parse_stat(stream.read())
        return None
