"""Gaps and contradictions in the step records of one task, in words. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from slurm_jobs.base import units
from slurm_jobs.report.steps.attempt_steps import CLOCK_TOLERANCE, AttemptSteps
from slurm_jobs.report.steps.intervals import merge, subtract, total_s
from slurm_jobs.report.steps.profile_waits import profile_times


def step_notes(attempts: Sequence[AttemptSteps]) -> tuple[str, ...]:
    """Return notes on gaps and contradictions."""
    notes: list[str] = []
    for attempt in attempts:
        name = f"attempt {attempt.attempt}"
        if num_abandoned := len(attempt.abandoned(attempt.longest)):
            notes.append(
                f"{name}: {units.number_of('step', num_abandoned)} under an earlier config or "
                "code, which no later attempt continued: other work, neither progress nor repeated"
            )
        if lacking := attempt.num_ranks - len(attempt.ranks):
            notes.append(
                f"{name}: {lacking} of {attempt.num_ranks} ranks left no step records; "
                "its steps are left out of the rates"
            )
        fewest, most = min(attempt.num_kept), max(attempt.num_kept)
        if fewest < most:
            short = attempt.ranks[attempt.num_kept.index(fewest)].rank
            notes.append(
                f"{name}: the ranks recorded unequal numbers of steps ({fewest:,} by rank "
                f"{short}, {most:,} at most; normal where an attempt was killed or "
                "still runs); rates and shares are of those that all recorded"
            )
        share, wall_s, rank = _off_the_clock(attempt)
        if share > CLOCK_TOLERANCE:
            notes.append(
                f"{name}: by rank {rank}'s wall clock the steps took {units.seconds(wall_s)}, "
                f"{units.percent(share)} off the sum of their times: the clock was set, or there "
                "were gaps between steps; rates are over the sum"
            )
    return (*notes, *_lost(attempts), *_no_numbers(attempts))


def _off_the_clock(attempt: AttemptSteps) -> tuple[float, float, int]:
    """Return how far wall clock and sum of steps differ (share), that time, and the worst rank.

    Time that the rank recorded between two steps is excluded, and so is the writing of profiles by
    any rank. `without_profile_waits` moved the start of steps that waited for a profile, which
    leaves a gap of at most one step before them: `reach_s` covers it.
    """
    profiles = profile_times(attempt.ranks)
    worst = (0.0, 0.0, 0)
    for index, timing in enumerate(attempt.ranks):
        steps = attempt.measured(index)
        if not len(steps):
            continue
        starts, lengths = steps["start_unix_s"], steps["step_s"]
        reach_s = float(lengths.max())
        wall_s = float(starts[-1] + lengths[-1] - starts[0])
        sum_s = float(lengths.sum(dtype=np.float64))
        if abs(wall_s - sum_s) > CLOCK_TOLERANCE * sum_s:
            gaps = merge(zip((starts + lengths)[:-1].tolist(), starts[1:].tolist(), strict=True))
            spans = [
                (span["start_unix_s"], span["start_unix_s"] + span["duration_s"])
                for span in timing.spans
            ]
            explained = merge([*spans, *((start - reach_s, end) for start, end in profiles)])
            wall_s -= total_s(gaps) - total_s(subtract(gaps, explained))
        share = abs(wall_s - sum_s) / sum_s if sum_s else 0.0
        worst = max(worst, (share, wall_s, timing.rank))
    return worst


def _lost(attempts: Sequence[AttemptSteps]) -> Iterator[str]:
    """Yield steps between two attempts without a record, although the later one continued them."""
    end = None
    for attempt in attempts:
        kept_steps = attempt.kept(attempt.longest)["step"]
        if not len(kept_steps):
            continue
        if end is not None and kept_steps[0] > end:
            yield (
                f"attempt {attempt.attempt}: begins at step {kept_steps[0]:,}, and of the "
                f"{units.number_of('step', int(kept_steps[0]) - end)} before it there are no "
                "records: they are in no rate"
            )
        end = int(kept_steps[-1]) + 1


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
            f"the loss of the last {units.number_of('step', at_end)} is not a number (NaN or "
            "infinite): the reported loss is that of the steps before"
        )
