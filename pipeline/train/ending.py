"""Handling of stop requests after the last step of a training.

The state is saved, but a partial export or evaluation is not kept. The next attempt makes no
step and has all of its time for them, so an attempt that made steps may stop. If an attempt
started with all steps made, every attempt of the same length would repeat it. So it finishes
what fits in the time left, and otherwise raises an error that explains this
(`pipeline.stopping`).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from pipeline.stopping import Answer, AttemptProgress, answer_stop, describe_shortage, measure_pace
from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.errors import StageConfigError, StageStoppedError
from slurm_jobs.base.processes.stop_requests import end_requested, stop_requested
from slurm_jobs.formats.records.heartbeat import beat
from slurm_jobs.formats.records.task_context import TaskContext

log = logging.getLogger(__name__)

T = TypeVar("T")

_REMEDY = (
    "raise resources.timeout_min, or lower evaluate.num_samples or evaluate.max_new_tokens; "
    "with either, `slurm-jobs resume RUN --set KEY=VALUE` continues from the last checkpoint"
)


class TimeLimitError(StageConfigError):
    """The time limit is too short; all ranks agreed on that, so no rank waits for another."""


class Ending:
    """Handles stop requests after the last step; all ranks stop together, or none does."""

    def __init__(
        self, ranks: Ranks, context: TaskContext, *, began_unix_s: float, made_steps: bool
    ) -> None:
        self._ranks = ranks
        self._context = context
        self._began_unix_s = began_unix_s
        self._made_steps = made_steps
        self._goes_on = False

    def check(self, unit: str) -> None:
        """Call on every rank before indivisible work, one of `unit`; raises like `between`."""
        num_stops, num_ends = self._ranks.sums([float(stop_requested()), float(end_requested())])
        if num_stops:
            now = time.time()
            pace = self._pace(num_done=0, num_total=1, first_unix_s=now)
            self._heed(pace, unit, must_end=bool(num_ends))

    def between(self, batches: Sequence[Sequence[T]], unit: str) -> Iterator[Sequence[T]]:
        """Yield this rank's batches, each after all ranks agree; every rank must take them all.

        Ranks with fewer batches than others wait for these with their last one.

        Raises:
            StageStoppedError: a rank was asked to stop; the next attempt does all of it.
            TimeLimitError: a rank was asked to stop, and no attempt of this length would
                finish.
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

    def _pace(self, *, num_done: int, num_total: int, first_unix_s: float) -> AttemptProgress:
        return measure_pace(
            self._context,
            num_done=num_done,
            num_total=num_total,
            started_unix_s=self._began_unix_s,
            first_unix_s=first_unix_s,
        )

    def _heed(self, pace: AttemptProgress, unit: str, *, must_end: bool) -> None:
        """Follow rank 0's decision; the clocks of nodes differ."""
        answer, pace = self._ranks.from_main(
            (answer_after_steps(pace, made_steps=self._made_steps, must_end=must_end), pace)
        )
        if answer == "stop":
            message = (
                f"asked to stop after the last step: its state is saved; {pace.num_done} of "
                f"{pace.num_total} {unit} were done, and the next attempt starts them again"
            )
            raise StageStoppedError(message)
        if answer == "give_up":
            raise TimeLimitError(describe_shortage(pace, unit=unit, remedy=_REMEDY))
        if self._ranks.rank == 0 and not self._goes_on:
            log.warning("asked to stop near the time limit; the rest may fit, so it continues")
        self._goes_on = True


def answer_after_steps(pace: AttemptProgress, *, made_steps: bool, must_end: bool) -> Answer:
    """Decide about a stop request when all steps are made, from the pace of the remaining work.

    `made_steps`: this attempt made steps, so the next one has more time for the rest.
    """
    if made_steps and (pace.left_s is None or pace.needed_s > pace.left_s):
        return "stop"
    return answer_stop(pace, must_end=must_end)
