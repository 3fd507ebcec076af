"""Steps of a training that its rules judge. PURE.

A resume may have replaced the config, and advice is for the newest: problems of an earlier one may
be fixed already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_jobs.report import words
from slurm_jobs.report.numbers.newest import of_newest
from slurm_jobs.report.numbers.steps import AttemptSteps

MIN_STEPS = 20
"""Fewer measured steps are not judged: one slow step would be 5 % of them, which is the lower of
XProf's bands."""


def judged_attempts(
    attempts: Sequence[AttemptSteps], fingerprints: Mapping[int, str]
) -> tuple[AttemptSteps, ...]:
    """Return the attempts under the newest config and code if they have enough steps; else all.

    Args:
        attempts: attempts of one slice, oldest first.
        fingerprints: hash of config and code by attempt.
    """
    newest = of_newest(attempts, fingerprints)
    return newest if _num_measured(newest) >= MIN_STEPS else tuple(attempts)


def mixed_note(
    attempts: Sequence[AttemptSteps], fingerprints: Mapping[int, str]
) -> tuple[str, ...]:
    """Return which steps the findings use, if config or code changed; empty if they did not."""
    newest = _num_measured(of_newest(attempts, fingerprints))
    whole = _num_measured(attempts)
    if newest == whole:
        return ()
    steps = words.number_of("measured step", newest)
    note = (
        f"findings on the steps are of the {steps} under the newest config and code; the other "
        f"{whole - newest:,} were made under earlier ones, and rates and shares are of all"
    )
    if newest < MIN_STEPS:
        steps = words.number_of("measured step", whole)
        note = (
            f"only {newest:,} of the {steps} are of the newest config and code: findings are of "
            "earlier ones, too, and may be fixed already"
        )
    return (note,)


def _num_measured(attempts: Sequence[AttemptSteps]) -> int:
    return sum(attempt.num_measured for attempt in attempts)
