"""Where the time of one thread's piece of work went: on a core, waiting for one, or for else.

Tells apart why a loader is slow, without a mark around each read: what is mapped into memory is
read from the disk wherever it is first touched, be that in a copy or in a decoder.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SCHEDSTAT = Path("/proc/thread-self/schedstat")
_NS = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadTimes:
    """Seconds of one piece of work, or of several together."""

    wall_s: float = math.nan
    """From its start to its end."""
    cpu_s: float = math.nan
    """Of it, computing."""
    core_wait_s: float = math.nan
    """Of it, ready to compute, but other threads had the cores; NaN where the kernel keeps no
    account. What is left is blocked: on storage, or on a lock such as the interpreter's."""

    @property
    def blocked_s(self) -> float:
        """What is left; NaN where the rest is not known."""
        return self.wall_s - self.cpu_s - self.core_wait_s


NOT_TIMED = ThreadTimes()


def add_up(times: Iterable[ThreadTimes]) -> ThreadTimes:
    """The sum of each; NaN where one is not known."""
    found = list(times)
    return ThreadTimes(
        wall_s=math.fsum(one.wall_s for one in found),
        cpu_s=math.fsum(one.cpu_s for one in found),
        core_wait_s=math.fsum(one.core_wait_s for one in found),
    )


class ThreadClock:
    """Begins when it is made; `read` it in the same thread. Costs some 20 microseconds."""

    def __init__(self) -> None:
        self._began = _now()

    def read(self) -> ThreadTimes:
        """Since it was made."""
        wall_s, cpu_s, core_wait_s = (
            now - then for now, then in zip(_now(), self._began, strict=True)
        )
        return ThreadTimes(wall_s=wall_s, cpu_s=cpu_s, core_wait_s=core_wait_s)


def _now() -> tuple[float, float, float]:
    return time.perf_counter(), time.thread_time(), core_wait_so_far_s()


def core_wait_so_far_s() -> float:
    """Of this thread, all its life (Documentation/scheduler/sched-stats.rst).

    How long it was ready to compute while others had the cores; NaN where nobody keeps account.
    """
    if not _is_accounted():
        return math.nan
    return int(_SCHEDSTAT.read_bytes().split()[1]) * _NS


@functools.cache
def _is_accounted() -> bool:
    """Whether the kernel keeps account of these waits, for this process to read."""
    try:
        return len(_SCHEDSTAT.read_bytes().split()) > 1
    except OSError:
        return False
