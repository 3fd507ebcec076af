"""Processes of this job on this node: their processor time, memory and cores.

They are those of this rank's session: Slurm starts all ranks of a step on a node in one
session, the local scheduler all ranks of a task. Finding them requires a system call for each
process of the node (a microsecond), so it is done rarely.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.timing.load.kernel_counters import Increase

_SCAN_EVERY_S = 30.0
_NOT_OURS = frozenset({"slurmstepd"})
"""In the session, but may use every core of the node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessStat:
    """Fields of /proc/PID/stat, see proc(5)."""

    name: str
    cpu_ticks: int
    start_ticks: int
    resident_pages: int


def parse_stat(text: str) -> ProcessStat:
    """Parse /proc/PID/stat; the name, in brackets, may contain anything."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()  # from the state on, the third field there
    return ProcessStat(
        name=head.partition("(")[2],
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        resident_pages=int(fields[21]),
    )


class JobProcesses:
    """Reads `job_cpu_s_per_s` and `job_resident_bytes`."""

    def __init__(
        self,
        *,
        session_of: Callable[[int], int] = os.getsid,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
        affinity: Callable[[int], Collection[int]] = os.sched_getaffinity,
    ) -> None:
        self._session_of = session_of
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
        ticks: dict[Hashable, Sequence[float]] = {}
        resident_pages = 0
        for pid in self._pids:
            with suppress(OSError):  # it has ended meanwhile
                stat = self._stat(pid)
                ticks[pid, stat.start_ticks] = [stat.cpu_ticks]
                resident_pages += stat.resident_pages
        grown = self._increase.see(ticks)
        values = {"job_resident_bytes": float(self._page_bytes * resident_pages)}
        if grown is not None and interval_s > 0:
            values["job_cpu_s_per_s"] = grown[0] * self._tick_s / interval_s
        return values

    def scan(self) -> None:
        """Find the processes and the cores that they may use."""
        self._next_scan_s = self._clock() + _SCAN_EVERY_S
        session = self._session_of(0)
        self._pids, cores = [], set(self._affinity(0))
        for name in os.listdir(self._proc):  # noqa: PTH208 - Path.iterdir costs twice the time
            if not name.isdecimal():
                continue
            pid = int(name)
            with suppress(OSError):  # it has ended meanwhile
                if self._session_of(pid) == session and self._stat(pid).name not in _NOT_OURS:
                    self._pids.append(pid)
                    cores |= set(self._affinity(pid))
        self._cores = frozenset(cores)

    def _stat(self, pid: int) -> ProcessStat:
        return parse_stat((self._proc / str(pid) / "stat").read_text(errors="replace"))
