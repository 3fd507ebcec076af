"""Lengths of trials, and their number within a budget."""

from __future__ import annotations

import pytest

from slurm_jobs.formats.configs.stages import WARMUP_STEPS
from slurm_jobs.tuning.trial_lengths import (
    CLOSING_TRIALS,
    LEAST_TRIALS,
    PROBE_STEPS,
    least_budget_s,
    length_of,
)
from slurm_jobs.tuning.trial_model import Trial


def probe(*, start_s: float, step_s: float) -> Trial:
    return Trial(
        number=1,
        basis="b",
        purpose="probe",
        comparison="probe",
        arm="A",
        changes=(),
        num_steps=PROBE_STEPS,
        nodes=("n0",),
        wall_s=start_s + PROBE_STEPS * step_s,
        tokens_per_s=1.0,
        step_s=step_s,
    )


def measured_s(made: Trial, budget_s: float) -> float:
    return (length_of(made, budget_s).num_steps - WARMUP_STEPS) * made.step_s


def num_trials(made: Trial, budget_s: float) -> float:
    return (budget_s - made.wall_s) / length_of(made, budget_s).trial_s


@pytest.mark.parametrize("start_s", [20.0, 60.0, 150.0])
def test_a_trial_measures_as_long_as_its_start_if_two_knobs_still_fit(start_s: float):
    made = probe(start_s=start_s, step_s=0.1)
    budget_s = made.wall_s + 4 * CLOSING_TRIALS * 2.1 * start_s
    assert measured_s(made, budget_s) == pytest.approx(start_s, abs=made.step_s)
    assert num_trials(made, budget_s) >= 4 * CLOSING_TRIALS


def test_trials_are_shortened_until_two_knobs_fit_the_budget():
    made = probe(start_s=60.0, step_s=0.1)
    assert 5 < measured_s(made, 30 * 60) < 60
    assert num_trials(made, 30 * 60) == pytest.approx(4 * CLOSING_TRIALS, rel=0.01)


def test_short_starts_leave_room_for_four_knobs_of_longer_trials():
    made = probe(start_s=5.0, step_s=0.1)
    assert measured_s(made, 30 * 60) > 30
    assert num_trials(made, 30 * 60) == pytest.approx(6 * CLOSING_TRIALS, rel=0.01)


def test_a_trial_with_a_short_start_measures_a_minute_of_steps_at_most():
    assert measured_s(probe(start_s=5.0, step_s=0.1), 24 * 3600) == pytest.approx(60, abs=0.1)


def test_the_smallest_budget_holds_trials_of_the_fewest_judgeable_steps():
    made = probe(start_s=60.0, step_s=2.0)
    budget_s = least_budget_s(made)
    assert length_of(made, budget_s).num_steps == PROBE_STEPS
    assert num_trials(made, budget_s) == pytest.approx(LEAST_TRIALS)
