"""What a stage that keeps nothing does when it is asked to stop: stop, go on, or give up.

`preprocess` and `consolidate` start anew after a stop. So near the time limit
a stop would only be repeated by every attempt of the same length: what fits in
the time left is finished, and what does not is an error that says so. `train`
saves its state while it makes steps; what comes after the last of them keeps
nothing either (`pipeline.training.ending`).
"""

from __future__ import annotations

import logging
import math
import os
import time
from dataclasses import dataclass, field
from typing import Literal

from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageConfigError, StageStoppedError
from slurm_jobs.common.stop import end_requested, stop_requested

log = logging.getLogger(__name__)

NEAR_S = 600.0
"""Less than this before the time limit a request to stop is taken to be about it."""

Answer = Literal["stop", "go_on", "give_up"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How far an attempt is, by one clock."""

    num_done: int
    num_total: int
    spent_s: float
    """On the items that are done."""
    late_s: float
    """Of the job's time, before the attempt began: a retry in place gets what others left."""
    elapsed_s: float
    """Since the attempt began."""
    left_s: float | None
    """Until the time limit; None without one."""

    @property
    def needed_s(self) -> float:
        """For the items that are left, at the pace so far; infinite if none is done yet."""
        num_left = self.num_total - self.num_done
        return num_left * self.spent_s / self.num_done if self.num_done else math.inf


def answer_stop(pace: Pace, *, must_end: bool) -> Answer:
    """What to do about a request to stop, where nothing of the work can be kept.

    Far from the time limit the request is a preemption: stop, another attempt
    may have more luck. Near it, a stop would come again at the same place of
    every attempt. So what fits in the time left is finished, unless `must_end`
    (the scheduler kills soon). What does not fit, as seen in the last half of
    the attempt, is given up if it does not fit in the whole time limit either.
    """
    if pace.left_s is None or pace.left_s >= max(NEAR_S, pace.late_s + pace.elapsed_s):
        return "stop"
    if pace.left_s < pace.elapsed_s and pace.needed_s > pace.left_s:
        return "give_up" if _is_hopeless(pace, pace.left_s) else "stop"
    return "stop" if must_end else "go_on"


def _is_hopeless(pace: Pace, left_s: float) -> bool:
    """Whether an attempt that has all of the time limit would not finish either."""
    if not pace.num_done:
        return pace.late_s < pace.elapsed_s
    return pace.needed_s > left_s + pace.late_s


@dataclass(slots=True)
class StopGuard:
    """Heeds requests to stop between the items of one attempt; begin it with the attempt."""

    context: TaskContext
    unit: str
    """What is counted: `rows`."""
    remedy: str
    """What the user may change if the time limit is too short."""
    _started_unix_s: float = field(default_factory=time.time)
    _first_unix_s: float | None = None
    _goes_on: bool = False

    def check(self, num_done: int, num_total: int) -> None:
        """Call before each item, with the number of those that are done.

        Raises:
            StageStoppedError: asked to stop; another attempt may finish.
            StageConfigError: asked to stop near a time limit that is too short.
        """
        if self._first_unix_s is None:
            self._first_unix_s = time.time()  # seeking and loading before it are not the pace
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
            log.warning("asked to stop near the time limit; the rest may fit in, so it goes on")
            self._goes_on = True


def measure_pace(
    context: TaskContext,
    *,
    num_done: int,
    num_total: int,
    started_unix_s: float,
    first_unix_s: float,
) -> Pace:
    """How far an attempt is now, that began at `started_unix_s`, its first item at the other."""
    now, deadline = time.time(), context.deadline_unix_s
    # Slurm says since when the job runs; elsewhere the attempt counts as its only one.
    job_started = float(os.environ.get("SLURM_JOB_START_TIME", started_unix_s))
    return Pace(
        num_done=num_done,
        num_total=num_total,
        spent_s=now - first_unix_s,
        late_s=started_unix_s - job_started,
        elapsed_s=now - started_unix_s,
        left_s=None if deadline is None else deadline - now,
    )


def describe_shortage(pace: Pace, *, unit: str, remedy: str) -> str:
    """How far an attempt got before its time limit, how long all of it takes, and the remedy."""
    assert pace.left_s is not None
    done = f"{pace.num_done} of {pace.num_total} {unit} done in {pace.elapsed_s:.0f} s"
    if math.isfinite(pace.needed_s):
        total_min = math.ceil((pace.elapsed_s + pace.needed_s) / 60)
        rest = f"the rest needs about {pace.needed_s:.0f} s more, about {total_min} min in all"
    else:
        rest = "not one is done"
    return (
        f"the time limit is too short: {done}, {max(pace.left_s, 0):.0f} s are left, and {rest}; "
        f"another attempt would get no further: {remedy}"
    )
