"""Attempts and steps that represent the current state of a training. PURE.

A resume may have changed config or code, and phases of a training do different work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_jobs.report.numbers.steps import AttemptSteps


def of_newest(
    attempts: Sequence[AttemptSteps], fingerprints: Mapping[int, str]
) -> tuple[AttemptSteps, ...]:
    """Return the attempts under the config and code of the last, in order.

    Args:
        attempts: attempts of one slice, oldest first.
        fingerprints: hash of config and code by attempt; unknown ones count as equal.
    """
    now = fingerprints.get(attempts[-1].attempt, "")
    return tuple(a for a in attempts if fingerprints.get(a.attempt, "") == now)


@dataclass(frozen=True, kw_only=True, slots=True)
class PhasePlace:
    """Phase of a training."""

    first_step: int
    is_last: bool
    num_phases: int


def phase_of(attempt: AttemptSteps) -> PhasePlace:
    """Return the phase of the last step that counts; a training without phases has only one."""
    file = attempt.ranks[0].steps
    said = (file.metadata.get("phases") if file is not None else None) or [{}]
    firsts = [int(phase.get("first_step", 0)) for phase in said]
    kept = attempt.kept(attempt.longest)
    last = int(kept["step"][-1]) if len(kept) else 0
    number = max(0, int(np.searchsorted(firsts, last, side="right")) - 1)
    return PhasePlace(
        first_step=firsts[number], is_last=number == len(firsts) - 1, num_phases=len(firsts)
    )
