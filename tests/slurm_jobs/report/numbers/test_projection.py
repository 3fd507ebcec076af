"""What is still to come: ranges that hold, over resumes, queue waits and time limits."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from slurm_jobs.report import words_projection
from slurm_jobs.report.model.training import Pace
from slurm_jobs.report.numbers.pace import time_of
from slurm_jobs.report.numbers.projection import _Course, _num_starts, project_epochs, projections
from slurm_jobs.report.terminal import print_report

PRICE = {"gpu_hour": 2.0, "cpu_hour": 0.0, "currency": "CHF"}


def pace(**values):
    given = {
        "num_ranks": 2,
        "step_s": 2.0,
        "spread_s": 0.0,
        "num_steps": 500,
        "num_stretches": 10,
        "samples_per_step": 64.0,
        "num_planned": 1500,
    }
    return Pace(**{**given, **values})


def test_the_range_holds_what_came_in_nineteen_of_twenty():
    """Of runs whose steps are AR(1) noise: the rest of the run lies within it."""
    rng, inside = np.random.default_rng(3), 0
    for _ in range(200):
        noise = rng.normal(0, 0.05, 2000)
        for step in range(1, 2000):
            noise[step] += 0.6 * noise[step - 1]
        seconds = 0.5 * np.exp(noise)
        stretches = seconds[:1000].reshape(10, 100).mean(axis=1)
        found = pace(
            step_s=float(stretches.mean()), spread_s=float(stretches.std(ddof=1)), num_steps=1000
        )
        low, high = time_of(found, 1000)
        inside += low <= seconds[1000:].sum() <= high
    assert 180 <= inside <= 200


def test_a_pace_is_of_the_steps_from_start_to_start(report_of):
    numbers = report_of(num_steps=400).training[0]
    found = numbers.pace
    assert found.step_s == pytest.approx(1 / numbers.steps_per_s.value, rel=0.01)
    assert found.samples_per_step == 64
    assert found.num_planned is None  # these records are of a version that did not say
    assert report_of(num_steps=30, stopped_at=None).training[0].pace is None


@pytest.fixture
def parts(report_of):
    """A training of which 400 of 1,500 steps are done, the others are to come."""
    report = report_of(finished=False, stopped_at=170, num_steps=400)
    (numbers,) = report.training
    (stage,) = [s for s in report.stages if s.name == "train"]
    inputs = report_of.inputs
    return (
        {s.name: s for s in inputs.stages},
        [replace(stage, status="failed")],
        [replace(numbers, pace=replace(numbers.pace, num_planned=1500))],
    )


def test_what_is_left_is_the_steps_that_no_attempt_made(parts):
    by_name, stages, training = parts
    (found,) = projections(by_name, stages, training, (), PRICE)
    assert (found.what, found.num_steps) == ("to the end", 1100)
    work_s = 1100 * training[0].pace.step_s
    assert found.seconds.low < work_s + found.wait.high + 200
    assert found.num_starts == 1  # its limit is an hour, and half of that is needed
    assert found.wait.high == pytest.approx(stages[0].queue_wait_max_s.value)
    held_h = (found.seconds.high - found.wait.high) / 3600
    assert found.gpu_hours.high == pytest.approx(2 * held_h)
    assert found.money.high == pytest.approx(2.0 * found.gpu_hours.high)
    said = words_projection.ahead(found, "CHF")
    assert said.startswith("train, to the end: ")
    assert "for 1,100 steps" in said
    assert "1 further start at most" in said


def test_a_training_that_is_done_or_of_an_earlier_config_has_nothing_ahead(parts):
    by_name, stages, training = parts
    done = [replace(stages[0], status="completed")]
    assert projections(by_name, done, training, (), None) == ()
    earlier = [replace(training[0], is_earlier=True)]
    assert projections(by_name, stages, earlier, (), None) == ()


def test_epochs_are_of_the_samples_that_the_run_made(report_of):
    inputs = report_of(num_steps=400)
    assert inputs.projections == ()
    report = report_of(num_steps=400, num_epochs=3)
    (found,) = report.projections
    assert found.what == "3 epochs"
    assert found.num_steps == -(-3 * int(report.data[0].num_samples.value) // 64)
    screen = Console(file=io.StringIO(), width=300)
    print_report(report, screen)
    assert "ahead: train, 3 epochs: " in screen.file.getvalue()


def test_no_projection_without_a_pace(parts):
    by_name, stages, training = parts
    without = [replace(training[0], pace=None)]
    assert projections(by_name, stages, without, (), None) == ()
    assert project_epochs(by_name, stages, without, None, num_epochs=1, num_samples=100) == ()


@pytest.mark.parametrize(
    ("limit_s", "running_s", "work_s", "expected"),
    [
        (None, None, 1e6, 1),
        (None, 10.0, 1e6, 0),
        (3600, None, 3000, 1),  # 3,500 s of a start are for steps
        (3600, None, 3501, 2),
        (3600, 600.0, 3000, 0),
        (3600, 600.0, 3001, 1),
        (3600, 600.0, 10_001, 3),
        (100, None, 50, 1),  # nothing but start-up fits: one start, and the report says the limit
    ],
)
def test_further_starts_are_those_that_the_time_limit_makes(limit_s, running_s, work_s, expected):
    course = _Course(
        startup_s=100.0,
        limit_s=limit_s,
        wait=None,
        running_since_s=running_s,
        num_gpus=0,
        num_cpus=1,
    )
    assert _num_starts(course, work_s) == expected
