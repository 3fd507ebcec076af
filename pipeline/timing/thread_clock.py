"""Time of one thread's work: on a core, waiting for a core, or blocked.

Shows why a loader is slow without instrumenting each read: memory-mapped data is read from the
disk wherever it is first accessed, in a copy or in a decoder.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SCHEDSTAT = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadTimes:
    """Seconds of one piece of work, or of several together."""

    wall_s: float = math.nan
    """From its start to its end."""
    cpu_s: float = math.nan
    """Computing."""
    core_wait_s: float = math.nan
    """Ready to compute, while other threads had the cores; NaN if the kernel does not account
    for it. The rest is blocked: on storage, or on a lock such as the interpreter's."""

    @property
    def blocked_s(self) -> float:
        """Remaining time; NaN if the other parts are unknown."""
        return self.wall_s - self.cpu_s - self.core_wait_s


NOT_TIMED = ThreadTimes()


def add_up(times: Iterable[ThreadTimes]) -> ThreadTimes:
    """Return the sum of each; NaN if one is unknown."""
    listed = list(times)
    return ThreadTimes(
        wall_s=math.fsum(entry.wall_s for entry in listed),
        cpu_s=math.fsum(entry.cpu_s for entry in listed),
        core_wait_s=math.fsum(entry.core_wait_s for entry in listed),
    )


class ThreadClock:
    """Starts at its creation; `read` it in the same thread. Costs about 20 microseconds."""

    def __init__(self) -> None:
        self._wall_s = time.perf_counter()
        self._cpu_s, self._core_wait_s = time.thread_time(), core_wait_so_far_s()

    def read(self) -> ThreadTimes:
        """Return the times since its creation."""
        # The wall clock is read first and last: a thread that loses its core between two of these
        # lines has not waited for longer than the work has taken.
        cpu_s, core_wait_s = time.thread_time(), core_wait_so_far_s()
        return ThreadTimes(
            wall_s=time.perf_counter() - self._wall_s,
            cpu_s=cpu_s - self._cpu_s,
            core_wait_s=core_wait_s - self._core_wait_s,
        )


def core_wait_so_far_s() -> float:
    """Return this thread's total time waiting for a core (Documentation/scheduler/sched-stats.rst).

    It was ready to compute while others had the cores; NaN without accounting.
    """
    if not _is_accounted():
        return math.nan
    return int(_SCHEDSTAT.read_bytes().split()[1]) * 1e-9


@functools.cache
def _is_accounted() -> bool:
    """Check whether the kernel accounts for these waits, readable by this process."""
    try:
        return len(_SCHEDSTAT.read_bytes().split()) > 1
    except OSError:
        return False
