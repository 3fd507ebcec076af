"""Length of trials, and their number within the budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_jobs.formats.configs.stages import WARMUP_STEPS
from slurm_jobs.report.steps.newest_steps import MIN_STEPS
from slurm_jobs.tuning.pairs import MIN_REPEATS
from slurm_jobs.tuning.trial_model import Trial

PROBE_STEPS = WARMUP_STEPS + MIN_STEPS
CLOSING_TRIALS = 2 * MIN_REPEATS
"""Trials reserved for the end: before and after."""
LEAST_TRIALS = 3 * CLOSING_TRIALS
"""After the probe: the control, one knob, before and after."""
_FAIR_TRIALS = 4 * CLOSING_TRIALS
"""After the probe: the control, two knobs, before and after. Own choice: with fewer knobs, longer
trials are more precise."""
_WANTED_TRIALS = 6 * CLOSING_TRIALS
"""For short steps and starts, which leave a choice: four knobs. Own choice."""
_LONGEST_S = 60.0
"""Maximum time of the measured steps, unless the start takes longer. Own choice."""
_MOST_STEPS = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Length:
    """Length of one trial."""

    num_steps: int
    """Warm-up included."""
    trial_s: float
    """Expected time, including the start, from the probe."""


def least_budget_s(probe: Trial) -> float:
    """Return the budget of the smallest tuning of this training."""
    return probe.wall_s + LEAST_TRIALS * (_start_s(probe) + PROBE_STEPS * probe.step_s)


def length_of(probe: Trial, budget_s: float) -> Length:
    """Return the length of trials.

    Measured steps take at least as long as the start if the budget then still covers two knobs,
    and up to a minute if it covers four. There are never fewer than `PROBE_STEPS`.

    Args:
        probe: first trial.
        budget_s: for all trials; at least `least_budget_s`.
    """
    start_s, left_s = _start_s(probe), budget_s - probe.wall_s
    unmeasured_s = start_s + WARMUP_STEPS * probe.step_s

    def measured_s(num_trials: int) -> float:
        return left_s / num_trials - unmeasured_s

    fair_s = min(start_s, measured_s(_FAIR_TRIALS))
    wanted_s = max(fair_s, min(_LONGEST_S, measured_s(_WANTED_TRIALS)))
    num_steps = WARMUP_STEPS + math.floor(wanted_s / max(probe.step_s, 1e-6))
    num_steps = min(max(num_steps, PROBE_STEPS), WARMUP_STEPS + _MOST_STEPS)
    return Length(num_steps=num_steps, trial_s=start_s + num_steps * probe.step_s)


def trial_seconds(trials: Sequence[Trial], length: Length) -> float:
    """Return the expected time of the next trial: the mean of finished ones, or the estimate."""
    walls = [t.wall_s for t in trials if t.purpose != "probe" and not t.failure]
    return sum(walls) / len(walls) if walls else length.trial_s


def _start_s(probe: Trial) -> float:
    """Return the time of a trial outside its steps."""
    return max(0.0, probe.wall_s - probe.num_steps * probe.step_s)
