"""Cost of a start of a training besides its steps, as an estimate for further starts. PURE.

A start that hung or died before its first step is excluded, and so is unexplained time after the
last step (a hang until the time limit).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from slurm_jobs.report.inputs.records import RankTiming
from slurm_jobs.report.intervals import merge, total_s
from slurm_jobs.report.model.run import Bar
from slurm_jobs.report.numbers.steps import AttemptSteps


def usual_start_s(
    attempts: Sequence[AttemptSteps], bars: Mapping[int, Bar], timings: Sequence[RankTiming]
) -> float:
    """Return the median of seconds before the first step and, if spans show it, after the last.

    Args:
        attempts: attempts with recorded steps.
        bars: start and end by attempt.
        timings: timings of the same slice, for the spans of the lowest rank.
    """
    around = [
        _before_s(attempt, bars[attempt.attempt]) + _after_s(attempt, timings)
        for attempt in attempts
        if attempt.attempt in bars
    ]
    return statistics.median(around) if around else 0.0


def _before_s(attempt: AttemptSteps, bar: Bar) -> float:
    first = float(attempt.records[attempt.longest]["start_unix_s"][0])
    return max(0.0, first - bar.start_unix_s)


def _after_s(attempt: AttemptSteps, timings: Sequence[RankTiming]) -> float:
    ranks = [timing for timing in timings if timing.attempt == attempt.attempt]
    spans = min(ranks, key=lambda timing: timing.rank).spans if ranks else ()
    last = float(attempt.records[attempt.longest]["start_unix_s"][-1])
    return total_s(
        merge(
            (span["start_unix_s"], span["start_unix_s"] + span["duration_s"])
            for span in spans
            if span["start_unix_s"] > last
        )
    )
