"""Gaps and contradictions in the step records of one task, in words. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from slurm_jobs.report import words
from slurm_jobs.report.inputs.records import RankTiming
from slurm_jobs.report.intervals import Interval, merge, subtract, total_s
from slurm_jobs.report.numbers.profiles import profile_times
from slurm_jobs.report.numbers.steps import CLOCK_TOLERANCE, AttemptSteps


def step_notes(attempts: Sequence[AttemptSteps]) -> tuple[str, ...]:
    """Return notes on gaps and contradictions."""
    own = (
        f"attempt {attempt.attempt}: {note}"
        for attempt in attempts
        for note in (*_other_work(attempt), *_uneven(attempt), *_clock(attempt))
    )
    return (*own, *_lost(attempts), *_no_numbers(attempts))


def _lost(attempts: Sequence[AttemptSteps]) -> Iterator[str]:
    """Yield steps between two attempts without a record, although the later one continued them."""
    end = None
    for attempt in attempts:
        kept = attempt.kept(attempt.longest)["step"]
        if not len(kept):
            continue
        if end is not None and kept[0] > end:
            yield (
                f"attempt {attempt.attempt}: begins at step {kept[0]:,}, and of the "
                f"{words.number_of('step', int(kept[0]) - end)} before it there are no records: "
                "they are in no rate"
            )
        end = int(kept[-1]) + 1


def _no_numbers(attempts: Sequence[AttemptSteps]) -> Iterator[str]:
    """Yield a loss that stopped being a number: more such steps than ever before in a row.

    A user's stage may write a loss only in some steps.
    """
    losses = np.concatenate([a.kept(a.longest)["loss"] for a in attempts])
    places = np.flatnonzero(np.isfinite(losses))
    if not len(places):
        return
    at_end = len(losses) - 1 - int(places[-1])
    if at_end > max(0, int(np.diff(places, prepend=-1).max()) - 1):
        yield (
            f"the loss of the last {words.number_of('step', at_end)} is no number (NaN or "
            "infinite): the reported loss is that of the steps before"
        )


def _other_work(attempt: AttemptSteps) -> Iterator[str]:
    num_steps = len(attempt.abandoned(attempt.longest))
    if num_steps:
        yield (
            f"{words.number_of('step', num_steps)} under an earlier config or code, which no later "
            "attempt continued: other work, neither progress nor repeated"
        )


def _uneven(attempt: AttemptSteps) -> Iterator[str]:
    lacking = attempt.num_ranks - len(attempt.ranks)
    if lacking:
        yield (
            f"{lacking} of {attempt.num_ranks} ranks left no step records; "
            "its steps are left out of the rates"
        )
    if min(attempt.num_kept) < max(attempt.num_kept):
        short = attempt.ranks[attempt.num_kept.index(min(attempt.num_kept))].rank
        yield (
            f"the ranks recorded unequal numbers of steps ({min(attempt.num_kept):,} by rank "
            f"{short}, {max(attempt.num_kept):,} at most; normal where an attempt was killed or "
            "still runs); rates and shares are of those that all recorded"
        )


def _clock(attempt: AttemptSteps) -> Iterator[str]:
    profiles = profile_times(attempt.ranks)
    off = (
        _off_the_clock(attempt.measured(index), timing, profiles)
        for index, timing in enumerate(attempt.ranks)
        if len(attempt.measured(index))
    )
    share, wall_s, rank = max(off, default=(0.0, 0.0, 0))
    if share > CLOCK_TOLERANCE:
        yield (
            f"by rank {rank}'s wall clock the steps took {words.seconds(wall_s)}, "
            f"{words.percent(share)} off the sum of their times: the clock was set, or there were "
            "gaps between steps; rates are over the sum"
        )


def _off_the_clock(
    steps: np.ndarray, timing: RankTiming, profiles: Sequence[Interval]
) -> tuple[float, float, int]:
    """Return the share by which wall clock and sum of steps differ, that time, and the rank.

    Time that the rank recorded between two steps is excluded, and so are the `profiles` of all. A
    step that waited for a profile now begins later by that wait: the gap before it extends back
    from the profile by at most the rest of the step.
    """
    starts, lengths = steps["start_unix_s"], steps["step_s"]
    reach_s = float(lengths.max())
    wall_s = float(starts[-1] + lengths[-1] - starts[0])
    sum_s = float(lengths.sum(dtype=np.float64))
    if abs(wall_s - sum_s) > CLOCK_TOLERANCE * sum_s:
        gaps = merge(zip((starts + lengths)[:-1].tolist(), starts[1:].tolist(), strict=True))
        own = [
            (span["start_unix_s"], span["start_unix_s"] + span["duration_s"])
            for span in timing.spans
        ]
        told = merge([*own, *((start - reach_s, end) for start, end in profiles)])
        wall_s -= total_s(gaps) - total_s(subtract(gaps, told))
    return abs(wall_s - sum_s) / sum_s if sum_s else 0.0, wall_s, timing.rank
