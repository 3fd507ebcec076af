"""Attempts and steps that represent the current state of a training. PURE.

A resume may have changed config or code, and phases of a training do different work. Advice is for
the newest config: problems of an earlier one may be fixed already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_jobs.base import units
from slurm_jobs.report.steps.attempt_steps import AttemptSteps


def of_newest(attempts: Sequence[AttemptSteps]) -> tuple[AttemptSteps, ...]:
    """Return the attempts at one slice under the config and code of the last, in order."""
    return tuple(a for a in attempts if a.fingerprint == attempts[-1].fingerprint)


@dataclass(frozen=True, kw_only=True, slots=True)
class PhasePlace:
    """Phase of a training."""

    first_step: int
    is_last: bool
    num_phases: int


def phase_of(attempt: AttemptSteps) -> PhasePlace:
    """Return the phase of the last step that counts; a training without phases has only one."""
    listed = attempt.ranks[0].header.get("phases") or [{}]
    firsts = [int(phase.get("first_step", 0)) for phase in listed]
    steps = attempt.kept(attempt.longest)
    last = int(steps["step"][-1]) if len(steps) else 0
    number = max(0, int(np.searchsorted(firsts, last, side="right")) - 1)
    return PhasePlace(
        first_step=firsts[number], is_last=number == len(firsts) - 1, num_phases=len(firsts)
    )


MIN_STEPS = 20
"""Fewer measured steps are not judged: one slow step would be 5 % of them, which is the lower of
XProf's bands."""


def judged_attempts(attempts: Sequence[AttemptSteps]) -> tuple[AttemptSteps, ...]:
    """Return the attempts under the newest config and code if they have enough steps; else all."""
    newest = of_newest(attempts)
    return newest if _num_measured(newest) >= MIN_STEPS else tuple(attempts)


def mixed_note(attempts: Sequence[AttemptSteps]) -> tuple[str, ...]:
    """Return which steps the findings use, if config or code changed; empty if they did not."""
    newest = _num_measured(of_newest(attempts))
    whole = _num_measured(attempts)
    if newest == whole:
        return ()
    steps = units.number_of("measured step", newest)
    note = (
        f"findings use only the {steps} under the newest config and code; rates and shares also "
        f"include the {whole - newest:,} under earlier ones"
    )
    if newest < MIN_STEPS:
        steps = units.number_of("measured step", whole)
        note = (
            f"only {newest:,} of the {steps} ran under the newest config and code, so findings "
            "also use earlier ones, and may be fixed already"
        )
    return (note,)


def _num_measured(attempts: Sequence[AttemptSteps]) -> int:
    return sum(attempt.num_measured for attempt in attempts)
