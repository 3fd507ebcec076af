"""What is still to come: ranges that hold, over resumes, queue waits and time limits."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from slurm_jobs.report import sentences
from slurm_jobs.report.inputs import RankTiming
from slurm_jobs.report.projection import _Course, _num_starts, project_epochs, projections
from slurm_jobs.report.report_model import Bar, Pace
from slurm_jobs.report.steps import find_pace, split_attempts, time_of
from slurm_jobs.report.terminal import print_report
from slurm_jobs.shared.timings import StepFile
from slurm_jobs.shared.units import known, missing

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
        "num_done": 400,
        "num_saved": 400,
        "num_phases": 1,
        "is_last_phase": True,
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
    (found,), notes = projections(by_name, stages, training, (), PRICE)
    assert notes == ()
    assert (found.what, found.num_steps) == ("to the end", 1100)
    work_s = 1100 * training[0].pace.step_s
    assert found.seconds.low < work_s + found.wait.high + 200
    assert found.num_starts == 1  # its limit is an hour, and half of that is needed
    assert found.wait.high == pytest.approx(stages[0].queue_wait_max_s.value)
    held_h = (found.seconds.high - found.wait.high) / 3600
    assert found.gpu_hours.high == pytest.approx(2 * held_h)
    assert found.money.high == pytest.approx(2.0 * found.gpu_hours.high)
    said = sentences.ahead(found, "CHF")
    assert said.startswith("train, to the end: ")
    assert "for 1,100 steps" in said
    assert "with 1 start of the job at most" in said


def test_a_training_that_is_done_or_of_an_earlier_config_has_nothing_ahead(parts):
    by_name, stages, training = parts
    done = [replace(stages[0], status="completed")]
    assert projections(by_name, done, training, (), None) == ((), ())
    earlier = [replace(training[0], is_earlier=True)]
    assert projections(by_name, stages, earlier, (), None) == ((), ())


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


def test_without_a_pace_there_is_a_reason_and_no_projection(parts):
    by_name, stages, training = parts
    without = [replace(training[0], pace=None)]
    why = "fewer than 200 steps of its newest config and phase show its pace"
    found, notes = projections(by_name, stages, without, (), None)
    assert (found, notes) == ((), (f"train: what is ahead is not known: {why}",))
    epochs = {"num_epochs": 2, "num_samples": {"preprocess": 100.0}}
    found, notes = project_epochs(by_name, stages, without, None, **epochs)
    assert (found, notes) == ((), (f"train: 2 epochs are not projected: {why}",))


@pytest.mark.parametrize(
    ("changed", "num_samples", "why"),
    [
        ({}, {}, "the run did not make its data"),
        ({}, {"preprocess": 10.0, "consolidate": 9.0}, "several stages made data before it"),
        ({"num_phases": 2}, {"preprocess": 10.0}, "it has phases, each with a pace of its own"),
        ({"samples_per_step": 0.0}, {"preprocess": 10.0}, "its records count no samples"),
    ],
)
def test_epochs_that_cannot_be_told_are_told_so(parts, changed, num_samples, why):
    by_name, stages, training = parts
    given = [replace(training[0], pace=replace(training[0].pace, **changed))]
    found, (note,) = project_epochs(
        by_name, stages, given, None, num_epochs=1, num_samples=num_samples
    )
    assert found == ()
    assert why in note


def test_phases_that_are_ahead_have_no_known_pace(parts):
    by_name, stages, training = parts
    given = [replace(training[0], pace=replace(training[0].pace, is_last_phase=False))]
    found, (note,) = projections(by_name, stages, given, (), None)
    assert found == ()
    assert "phases are ahead whose pace is not known yet" in note


def test_a_pace_is_of_the_newest_phase_and_config_alone(fabrication):
    def attempt(number, first, last, phases, slow_s=0.0):
        steps = fabrication.fabricate_steps(
            fabrication.Scenario(num_ranks=1), 0, first, last, fabrication.CREATED
        )
        steps["step_s"] += slow_s * (np.arange(first, last) >= phases[-1]["first_step"])
        metadata = {"num_ranks": 1, "num_steps": 900, "training": "t", "phases": phases}
        file = StepFile(metadata=metadata, steps=steps)
        return RankTiming(slice_index=0, attempt=number, rank=0, steps=file, spans=())

    two = [{"name": "a", "first_step": 0}, {"name": "b", "first_step": 300}]
    (only,) = split_attempts([attempt(1, 0, 600, two, slow_s=5.0)], 5, {})
    found = find_pace([only], {})
    assert found.num_steps == 300
    assert found.step_s > 5
    assert (found.num_phases, found.is_last_phase) == (2, True)

    one = two[:1]
    both = [attempt(1, 0, 300, one), attempt(2, 300, 600, one, slow_s=5.0)]
    attempts = split_attempts(both, 5, {})
    assert find_pace(attempts, {1: "x", 2: "x"}).num_steps == 590
    newest = find_pace(attempts, {1: "x", 2: "y"})
    assert newest.num_steps == 295
    assert newest.step_s > 5
    early = split_attempts([attempt(1, 0, 290, two)], 5, {})
    assert not find_pace(early, {}).is_last_phase


def test_steps_whose_records_are_lost_are_not_ahead(parts):
    by_name, stages, training = parts
    given = [replace(training[0], num_steps=230)]  # as many have records
    assert projections(by_name, stages, given, (), None)[0][0].num_steps == 1100


def test_after_a_failure_the_steps_since_the_last_save_are_to_be_made_again(parts):
    by_name, stages, training = parts
    bars = [
        Bar(
            stage="train", slice_index=0, attempt=2, job_id="1", node="n", eligible_unix_s=None,
            start_unix_s=1.0, end_unix_s=2.0, outcome=outcome, reason="",
        )
        for outcome in ("failed",)
    ]  # fmt: skip
    given = [replace(training[0], pace=replace(training[0].pace, num_saved=380))]
    (found,), _ = projections(by_name, stages, given, bars, None)
    assert found.num_steps == 1500 - 380
    stopped = [replace(bars[0], outcome="stopped")]
    assert projections(by_name, stages, given, stopped, None)[0][0].num_steps == 1100


def test_a_limit_that_start_up_uses_up_is_told(parts):
    by_name, stages, training = parts
    hopeless = [replace(stages[0], time_limit_s=known(5.0, "s"))]
    found, (note,) = projections(by_name, hopeless, training, (), None)
    assert found == ()
    assert "its time limit leaves no time for steps" in note


def test_without_accounting_the_limit_is_the_one_that_was_asked_for(parts):
    by_name, stages, training = parts
    silent = [replace(stages[0], time_limit_s=missing("s", "no accounting"))]
    given = [replace(training[0], pace=replace(training[0].pace, num_planned=100_000))]
    (found,), _ = projections(by_name, silent, given, (), None)
    assert found.num_starts > 10  # of an hour each


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
