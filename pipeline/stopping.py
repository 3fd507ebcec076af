"""Handling of stop requests in stages that keep no partial work: stop, continue, or give up.

`preprocess` and `consolidate` start again after a stop. So near the time limit every attempt of
the same length would repeat the stop. They finish what fits in the time left, and otherwise
raise an error that explains this. `train` saves its state while it makes steps; the work after
the last of them is not saved either (`pipeline.train.ending`).
"""

from __future__ import annotations

import logging
import math
import os
import time
from dataclasses import dataclass, field
from typing import Literal

from slurm_jobs.base.errors import StageConfigError, StageStoppedError
from slurm_jobs.base.processes.stop_requests import end_requested, stop_requested
from slurm_jobs.formats.records.task_context import TaskContext

log = logging.getLogger(__name__)

NEAR_S = 600.0
"""A stop request with less time than this left is assumed to be due to the time limit."""

Answer = Literal["stop", "go_on", "give_up"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptProgress:
    """Progress of an attempt, by one clock."""

    num_done: int
    num_total: int
    spent_s: float
    """Time spent on the completed items."""
    late_s: float
    """Job time before the attempt began: a retry in place gets what earlier attempts left."""
    elapsed_s: float
    """Time since the attempt began."""
    left_s: float | None
    """Time until the limit; None without one."""

    @property
    def needed_s(self) -> float:
        """Time for the remaining items, at the pace so far; infinite if none is done yet."""
        num_left = self.num_total - self.num_done
        return num_left * self.spent_s / self.num_done if self.num_done else math.inf


def answer_stop(pace: AttemptProgress, *, must_end: bool) -> Answer:
    """Decide about a stop request if no partial work can be kept.

    Far from the time limit the request is a preemption: stop, another attempt may finish. Near
    it, a stop would come at the same point of every attempt. So the rest is finished if it fits
    in the time left, unless `must_end` (the scheduler kills soon). If it does not fit, as
    judged in the last half of the attempt, and would not fit in the whole time limit either, it
    is given up.
    """
    if pace.left_s is None or pace.left_s >= max(NEAR_S, pace.late_s + pace.elapsed_s):
        return "stop"
    if pace.left_s < pace.elapsed_s and pace.needed_s > pace.left_s:
        return "give_up" if _is_hopeless(pace, pace.left_s) else "stop"
    return "stop" if must_end else "go_on"


def _is_hopeless(pace: AttemptProgress, left_s: float) -> bool:
    """Check whether an attempt with the whole time limit would not finish either."""
    if not pace.num_done:
        return pace.late_s < pace.elapsed_s
    return pace.needed_s > left_s + pace.late_s


@dataclass(slots=True)
class StopGuard:
    """Handles stop requests between the items of one attempt; create it at its start."""

    context: TaskContext
    unit: str
    """Unit of the count: `rows`."""
    remedy: str
    """Setting to change if the time limit is too short."""
    _started_unix_s: float = field(default_factory=time.time)
    _first_unix_s: float | None = None
    _goes_on: bool = False

    def check(self, num_done: int, num_total: int) -> None:
        """Call before each item, with the number of completed items.

        Raises:
            StageStoppedError: a stop was requested; another attempt may finish.
            StageConfigError: a stop was requested near a time limit that is too short.
        """
        if self._first_unix_s is None:
            self._first_unix_s = time.time()  # seeking and loading before it do not count
        if not stop_requested():
            return
        pace = measure_pace(
            self.context,
            num_done=num_done,
            num_total=num_total,
            started_unix_s=self._started_unix_s,
            first_unix_s=self._first_unix_s,
        )
        answer = answer_stop(pace, must_end=end_requested())
        if answer == "stop":
            message = f"stopped after {num_done} of {num_total} {self.unit}"
            raise StageStoppedError(message)
        if answer == "give_up":
            raise StageConfigError(describe_shortage(pace, unit=self.unit, remedy=self.remedy))
        if not self._goes_on:
            log.warning("asked to stop near the time limit; the rest may fit, so it continues")
            self._goes_on = True


def measure_pace(
    context: TaskContext,
    *,
    num_done: int,
    num_total: int,
    started_unix_s: float,
    first_unix_s: float,
) -> AttemptProgress:
    """Return an attempt's progress; it began at `started_unix_s`, its first item at the other."""
    now, deadline = time.time(), context.deadline_unix_s
    # Slurm reports when the job started; elsewhere the attempt counts as the only one.
    job_started = float(os.environ.get("SLURM_JOB_START_TIME", started_unix_s))
    return AttemptProgress(
        num_done=num_done,
        num_total=num_total,
        spent_s=now - first_unix_s,
        late_s=started_unix_s - job_started,
        elapsed_s=now - started_unix_s,
        left_s=None if deadline is None else deadline - now,
    )


def describe_shortage(pace: AttemptProgress, *, unit: str, remedy: str) -> str:
    """Describe an attempt's progress at its time limit, the total time, and the remedy."""
    assert pace.left_s is not None
    done = f"{pace.num_done} of {pace.num_total} {unit} done in {pace.elapsed_s:.0f} s"
    if math.isfinite(pace.needed_s):
        total_min = math.ceil((pace.elapsed_s + pace.needed_s) / 60)
        rest = f"the rest needs about {pace.needed_s:.0f} s more, about {total_min} min in all"
    else:
        rest = "none is done"
    return (
        f"the time limit is too short: {done}, {max(pace.left_s, 0):.0f} s are left, and {rest}; "
        f"another attempt would get no further: {remedy}"
    )
