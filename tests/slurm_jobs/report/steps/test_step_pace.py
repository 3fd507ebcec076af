"""The pace of a training: of the newest phase and config, from start to start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurm_jobs.report.steps.step_pace import find_pace
from tests.slurm_jobs.report.builders import attempts_of, make_steps, rank_timing, report_on
from tests.slurm_jobs.report.numbers.projected_training import training

__all__ = ["training"]


def test_a_pace_is_of_the_steps_from_start_to_start(report_of):
    numbers = report_of(num_steps=400).training[0]
    found = numbers.pace
    assert found.step_s == pytest.approx(1 / numbers.steps_per_s.value, rel=0.01)
    assert found.samples_per_step == 64
    assert found.num_planned is None  # these records are of a version that did not say
    assert report_of(num_steps=30, stopped_at=None).training[0].pace is None


def test_a_pace_is_of_the_newest_phase_and_config_alone():
    def attempt(number, first, last, phases, slow_s=0.0):
        steps = make_steps(last - first, first=first)
        steps["step_s"] += slow_s * (np.arange(first, last) >= phases[-1]["first_step"])
        said = {"num_ranks": 1, "num_steps": 900, "training": "t", "phases": phases}
        return rank_timing(number, 0, steps, **said)

    two = [{"name": "a", "first_step": 0}, {"name": "b", "first_step": 300}]
    (only,) = attempts_of(attempt(1, 0, 600, two, slow_s=5.0))
    found = find_pace([only])
    assert found.num_steps == 300
    assert found.step_s > 5
    assert (found.num_phases, found.is_last_phase) == (2, True)

    one = two[:1]
    attempts = attempts_of(attempt(1, 0, 300, one), attempt(2, 300, 600, one, slow_s=5.0))
    assert find_pace(attempts).num_steps == 590
    newest = find_pace([attempts[0], replace(attempts[1], fingerprint="new")])
    assert newest.num_steps == 295
    assert newest.step_s > 5
    assert not find_pace(attempts_of(attempt(1, 0, 290, two))).is_last_phase


def test_without_a_warm_up_all_that_the_first_steps_take_is_in_the_pace(training):
    training.start(1, training.begin, (0, 400))
    (found,) = report_on(training.paths, training.accounting, warmup_steps=0).training
    assert found.pace.warmup_s == 0
    assert found.pace.num_steps == 400
