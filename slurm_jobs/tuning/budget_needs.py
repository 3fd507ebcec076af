"""Comparisons for which the budget was too small: what was left, and what would suffice."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.tuning.pairs import MAX_REPEATS, MIN_REPEATS, TrialPairs
from slurm_jobs.tuning.trial_lengths import CLOSING_TRIALS, length_of, trial_seconds
from slurm_jobs.tuning.trial_model import Trial

MARGIN = 1.25
"""Factor on recommended budgets, because trials may become slower. Own choice; next to other work
they were once 1.5 times as slow, which this does not cover."""


def needed_s(pairs: TrialPairs, trial_s: float) -> float:
    """Return the time that a comparison still needs, including the closing trials."""
    return (pairs.num_missing + CLOSING_TRIALS) * trial_s


def open_trials(tried: Sequence[TrialPairs]) -> int:
    """Count the trials of undecided comparisons, which a larger budget runs first.

    All their trials count again, because with a larger budget trials may be longer.
    """
    return sum(
        2 * min(MAX_REPEATS, _repeats_to_decide(pairs)) for pairs in tried if not pairs.is_over
    )


def _repeats_to_decide(pairs: TrialPairs) -> int:
    """Return the repeats of each arm that are needed, including finished ones."""
    num_made = max(MIN_REPEATS, min(len(pairs.first), len(pairs.second)))
    return num_made + (pairs.verdict.more_runs or 0 if pairs.verdict is not None else 0)


def left_for_knobs_s(budget_s: float, trials: Sequence[Trial]) -> float:
    """Return the budget at the time when the last knob was skipped, before the closing trials.

    Trials of an earlier pass, before a resume with more budget, were spent by then.
    """
    others = [index for index, trial in enumerate(trials) if trial.purpose != "closing"]
    spent_s = sum(trial.wall_s for trial in trials[: max(others, default=-1) + 1])
    return max(0.0, budget_s - spent_s)


def why_no_room(left_s: float, needs_s: float) -> str:
    """Return `102 s of the budget were left, and one more comparison ... takes about 150 s`."""
    return (
        f"{units.seconds(left_s)} of the budget were left, and one more comparison with before "
        f"and after takes about {units.seconds(needs_s)}"
    )


def more_budget_min(
    probe: Trial, trials: Sequence[Trial], needs_s: float, trial_s: float, budget_s: float
) -> int:
    """Return whole minutes that suffice for one more comparison in addition to all finished trials.

    With a larger budget trials may be longer: those that are needed count with that length, and
    `MARGIN` is added.

    Args:
        probe: trial that measured the length of trials.
        trials: all that were made.
        needs_s: time of the comparison with the current trials.
        trial_s: time of each current trial.
        budget_s: current budget.
    """
    spent_s, num_trials = sum(trial.wall_s for trial in trials), needs_s / trial_s
    minutes = math.floor(budget_s / 60) + 1
    while True:
        length = length_of(probe, 60.0 * minutes)
        each_s = max(length.trial_s, trial_seconds(trials, length))
        if 60 * minutes - spent_s >= MARGIN * num_trials * each_s:
            return minutes
        minutes += 1
