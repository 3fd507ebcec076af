"""What a training that has made its last step does when it is asked to stop.

Its state is saved, but nothing of an export or an evaluation is kept. The next
attempt makes no step and has all of its time for them, so an attempt that made
steps may stop. One that began with all steps made would only be repeated by
every attempt of the same length: what fits in the time left is finished, and
what does not is an error that says so (`pipeline.stopping`).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from pipeline.stopping import Answer, Pace, answer_stop, describe_shortage, measure_pace
from pipeline.training.ranks import Ranks
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageConfigError, StageStoppedError
from slurm_jobs.common.heartbeat import beat
from slurm_jobs.common.stop import end_requested, stop_requested

log = logging.getLogger(__name__)

T = TypeVar("T")

_REMEDY = (
    "raise resources.timeout_min, or lower evaluate.num_samples or evaluate.max_new_tokens; with "
    "either, `slurm-jobs resume RUN --set KEY=VALUE` goes on from the last checkpoint"
)


class TimeLimitError(StageConfigError):
    """The time limit is too short; all ranks agreed on that, so none waits for another."""


class Ending:
    """Heeds requests to stop after the last step; all ranks stop together, or none does."""

    def __init__(
        self, ranks: Ranks, context: TaskContext, *, began_unix_s: float, made_steps: bool
    ) -> None:
        self._ranks = ranks
        self._context = context
        self._began_unix_s = began_unix_s
        self._made_steps = made_steps
        self._goes_on = False

    def check(self, unit: str) -> None:
        """Call on every rank before work that has no parts, one of `unit`; raises as `between`."""
        num_stops, num_ends = self._ranks.sums([float(stop_requested()), float(end_requested())])
        if num_stops:
            now = time.time()
            pace = self._pace(num_done=0, num_total=1, first_unix_s=now)
            self._heed(pace, unit, must_end=bool(num_ends))

    def between(self, batches: Sequence[Sequence[T]], unit: str) -> Iterator[Sequence[T]]:
        """This rank's batches, each once all ranks go on; every rank must take all of its own.

        Ranks with fewer batches than others wait for these with their last one.

        Raises:
            StageStoppedError: a rank was asked to stop; the next attempt does all of it.
            TimeLimitError: a rank was asked to stop, and no attempt of this length would finish.
        """
        first_unix_s, num_total = time.time(), 0
        for index in itertools.count():
            beat()
            mine = sum(len(batch) for batch in batches[index:])
            num_stops, num_ends, num_left = self._ranks.sums(
                [float(stop_requested()), float(end_requested()), float(mine)]
            )
            if not num_left:
                return
            num_total = num_total or int(num_left)
            if num_stops:
                num_done = num_total - int(num_left)
                pace = self._pace(num_done=num_done, num_total=num_total, first_unix_s=first_unix_s)
                self._heed(pace, unit, must_end=bool(num_ends))
            yield from batches[index : index + 1]

    def _pace(self, *, num_done: int, num_total: int, first_unix_s: float) -> Pace:
        return measure_pace(
            self._context,
            num_done=num_done,
            num_total=num_total,
            started_unix_s=self._began_unix_s,
            first_unix_s=first_unix_s,
        )

    def _heed(self, pace: Pace, unit: str, *, must_end: bool) -> None:
        """Do what rank 0's clock says; the clocks of nodes differ."""
        answer, pace = self._ranks.from_main(
            (answer_after_steps(pace, made_steps=self._made_steps, must_end=must_end), pace)
        )
        if answer == "stop":
            message = (
                f"asked to stop after the last step: its state is saved, {pace.num_done} of "
                f"{pace.num_total} {unit} done, which the next attempt begins anew"
            )
            raise StageStoppedError(message)
        if answer == "give_up":
            raise TimeLimitError(describe_shortage(pace, unit=unit, remedy=_REMEDY))
        if self._ranks.rank == 0 and not self._goes_on:
            log.warning("asked to stop near the time limit; the rest may fit in, so it goes on")
        self._goes_on = True


def answer_after_steps(pace: Pace, *, made_steps: bool, must_end: bool) -> Answer:
    """What to do about a request to stop when all steps are made; the pace is that of the rest.

    `made_steps`: this attempt made some of them, so that the next has more time for the rest.
    """
    if made_steps and (pace.left_s is None or pace.needed_s > pace.left_s):
        return "stop"
    return answer_stop(pace, must_end=must_end)
