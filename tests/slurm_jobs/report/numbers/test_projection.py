"""What is still to come: ranges that hold, over resumes, queue waits and time limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurm_jobs.base.quantities import known, missing
from slurm_jobs.report.numbers.projection import _num_starts, _Overhead, project_epochs, projections
from slurm_jobs.report.steps.step_pace import time_of
from slurm_jobs.report.text import cost_sentences
from slurm_jobs.report.values.stage_model import Bar
from slurm_jobs.report.values.training_model import StepPace
from tests.slurm_jobs.report.builders import add_span, check, notes_with, printed, stage_of
from tests.slurm_jobs.report.numbers.projected_training import training

__all__ = ["training"]

PRICE = {"gpu_hour": 2.0, "cpu_hour": 0.0, "currency": "CHF"}


def test_the_range_holds_what_came_in_nineteen_of_twenty():
    """Of runs whose steps are AR(1) noise: the rest of the run lies within it."""
    rng, inside = np.random.default_rng(3), 0
    for _ in range(200):
        noise = rng.normal(0, 0.05, 2000)
        for step in range(1, 2000):
            noise[step] += 0.6 * noise[step - 1]
        seconds = 0.5 * np.exp(noise)
        stretches = seconds[:1000].reshape(10, 100).mean(axis=1)
        found = StepPace(
            num_ranks=2, num_steps=1000, num_stretches=10, samples_per_step=64.0,
            num_planned=1500, num_done=400, num_saved=400, num_phases=1, is_last_phase=True,
            step_s=float(stretches.mean()), spread_s=float(stretches.std(ddof=1)),
        )  # fmt: skip
        low, high = time_of(found, 1000)
        inside += low <= seconds[1000:].sum() <= high
    assert 180 <= inside <= 200


@pytest.fixture
def ahead(report_of, inputs_of):
    """Project a training of which 400 of 1,500 steps are done, with changes.

    `ahead.stage` and `ahead.training` are what is changed.
    """
    report = report_of(finished=False)
    (numbers,) = report.training
    by_name = {stage.name: stage for stage in inputs_of(finished=False).stages}

    def project(*, stage=None, training=None, bars=(), price=None, num_samples=None, **of_pace):
        pace = replace(project.training.pace, **of_pace)
        stages = [replace(project.stage, **(stage or {}))]
        trainings = [replace(project.training, **{"pace": pace, **(training or {})})]
        if num_samples is None:
            return projections(by_name, stages, trainings, bars, price)
        epochs = {"num_epochs": 2, "num_samples": num_samples}
        return project_epochs(by_name, stages, trainings, price, **epochs)

    project.stage = replace(stage_of(report), status="failed")
    project.training = replace(numbers, pace=replace(numbers.pace, num_planned=1500))
    return project


def test_what_is_left_is_the_steps_that_no_attempt_made(ahead):
    (found,), notes = ahead(price=PRICE)
    assert notes == ()
    assert (found.what, found.num_steps) == ("to the end", 1100)
    work_s = 1100 * ahead.training.pace.step_s
    assert found.seconds.low < work_s + found.wait.high + 200
    assert found.num_starts == 1  # its limit is an hour, and half of that is needed
    assert found.wait.high == pytest.approx(ahead.stage.queue_wait_max_s.value)
    held_h = (found.seconds.high - found.wait.high) / 3600
    assert found.gpu_hours.high == pytest.approx(2 * held_h)
    assert found.money.high == pytest.approx(2.0 * found.gpu_hours.high)
    said = cost_sentences.ahead(found, "CHF")
    assert said.startswith("train, to the end: ")
    assert "for 1,100 steps" in said
    assert "with 1 start of the job at most" in said


@pytest.mark.parametrize(
    "changes", [{"stage": {"status": "completed"}}, {"training": {"is_earlier": True}}]
)
def test_a_training_that_is_done_or_of_an_earlier_config_has_nothing_ahead(ahead, changes):
    assert ahead(**changes) == ((), ())


def test_epochs_are_of_the_samples_that_the_run_made(report_of):
    assert report_of().projections == ()
    report = report_of(num_epochs=3)
    (found,) = report.projections
    assert found.what == "3 epochs"
    assert found.num_steps == -(-3 * int(report.data[0].num_samples.value) // 64)
    assert "ahead: train, 3 epochs: " in printed(report, 300)


NO_PACE = "fewer than 200 steps of its newest config and phase show its pace"
NO_TIME = "its time limit leaves no time for steps"
FEW = {"preprocess": 10.0}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"training": {"pace": None}}, f"train: what is ahead is not known: {NO_PACE}"),
        ({"is_last_phase": False}, "phases are ahead whose pace is not known yet"),
        ({"stage": {"time_limit_s": known(5.0, "s")}}, NO_TIME),
        (
            {"training": {"pace": None}, "num_samples": FEW},
            f"train: 2 epochs are not projected: {NO_PACE}",
        ),
        (
            {"stage": {"time_limit_s": known(5.0, "s")}, "num_samples": FEW},
            f"train: 2 epochs are not projected: {NO_TIME}",
        ),
        ({"num_samples": {}}, "the run did not make its data"),
        ({"num_samples": {**FEW, "consolidate": 9.0}}, "several stages made data before it"),
        ({"num_phases": 2, "num_samples": FEW}, "it has phases, each with a pace of its own"),
        ({"samples_per_step": 0.0, "num_samples": FEW}, "its records count no samples"),
    ],
)
def test_a_projection_that_is_impossible_is_noted_with_the_reason(ahead, changes, why):
    found, (note,) = ahead(**changes)
    assert found == ()
    assert why in note


def test_epochs_are_not_projected_without_a_training():
    found, notes = project_epochs({}, [], [], None, num_epochs=3, num_samples={})
    assert found == ()
    assert notes == ("3 epochs are not projected: no training has recorded steps",)


@pytest.mark.parametrize(
    ("outcome", "changes", "num_steps"),
    [
        pytest.param("failed", {"num_saved": 380}, 1500 - 380, id="since the last save"),
        pytest.param("stopped", {"num_saved": 380}, 1100, id="stopped"),
        pytest.param(None, {"training": {"num_steps": 230}}, 1100, id="records that are lost"),
    ],
)
def test_steps_are_to_be_made_again_after_a_failure_alone(ahead, outcome, changes, num_steps):
    bar = Bar(
        stage="train", slice_index=0, attempt=2, job_id="1", node="n", eligible_unix_s=None,
        start_unix_s=1.0, end_unix_s=2.0, outcome=outcome, reason="",
    )  # fmt: skip
    (found,), _ = ahead(bars=[bar] if outcome else [], **changes)
    assert found.num_steps == num_steps


def test_without_accounting_the_limit_is_the_one_that_was_requested(ahead):
    silent = {"time_limit_s": missing("s", "no accounting")}
    (found,), _ = ahead(stage=silent, num_planned=100_000)
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
    overhead = _Overhead(
        startup_s=100.0,
        limit_s=limit_s,
        wait=None,
        running_since_s=running_s,
        num_gpus=0,
        num_cpus=1,
    )
    assert _num_starts(overhead, work_s) == expected


def test_a_start_that_hung_before_its_first_step_says_nothing_of_the_next(training):
    at = training.begin
    for attempt in (1, 2):
        training.start(attempt, at)
        training.row("NODE_FAIL", at, at + 3300)
        at += 3400
    end = training.start(3, at, (0, 600))
    training.row("RUNNING", at)
    training.plan(3, 20_000)
    report = training.report(end + 1)
    assert report.training[0].start_s == pytest.approx(33.8 + 7.5, abs=1)
    (found,) = report.projections
    assert found.num_starts == 3
    assert not notes_with(report, "time limit leaves")


def test_a_hang_after_the_last_step_is_no_part_of_a_start(training):
    at = training.begin
    training.start(1, at, (0, 400))
    training.row("TIMEOUT", at, at + 3600)
    training.plan(1, 20_000)
    report = training.report()
    assert report.training[0].start_s == pytest.approx(30.8 + 7.5, abs=1)
    assert report.projections[0].num_starts < 6


@pytest.mark.parametrize(("loaded", "left"), [(None, 900), (150, 850)])
def test_steps_lost_by_a_kill_are_ahead_until_the_next_start_makes_some(training, loaded, left):
    at = training.begin
    end = training.start(1, at, (0, 330))

    def save_once(records):
        records["checkpoint_s"][101:] = 0

    training.change(1, save_once, num_steps=1000)
    training.row("NODE_FAIL", at, end)
    training.start(2, end + 60)
    training.row("RUNNING", end + 60, source="squeue")
    if loaded is not None:
        folder = training.paths.timing_dir("train", 0, 2)
        add_span(folder, 0, "checkpoint_load", end + 70, 1.0, step=loaded)
    assert training.ahead(end + 80).num_steps == left


def test_limits_and_requests_that_a_resume_changed_count_no_more(training):
    at = training.begin
    training.start(1, at)
    training._end("train", 0, 1, "14", at, at + 400, "failed", reason="exit 1")
    asked = {"requested_mem_bytes": 256e9, "max_rss_bytes": 20e9}
    training.row("FAILED", at, at + 400, limit_s=86_400, **asked)
    at += 500
    training._submit("train", None, "16")
    training.start(2, at, (0, 400), job_id="16")
    training._end("train", 0, 2, "16", at, at + 3400, "completed", result={})
    asked = {"requested_mem_bytes": 32e9, "max_rss_bytes": 30e9}
    training.row("COMPLETED", at, at + 3400, job_id="16", **asked)
    report = training.report()
    stage = stage_of(report)
    assert (stage.time_limit_s.value, stage.requested_mem_bytes.value) == (3600, 32e9)
    limit = check(report, "time-request")
    assert (limit.outcome, limit.reason) == ("clear", "94 % of the time limit was used")
    assert check(report, "memory-request").outcome == "clear"


def test_the_forecast_uses_the_time_limit_of_the_resume(training):
    at = training.begin
    end = training.start(1, at, (0, 300))
    training._end("train", 0, 1, "14", at, end + 5, "stopped", reason="asked to stop")
    training.row("PREEMPTED", at, end + 6, limit_s=86_400)
    at = end + 100
    training._submit("train", None, "16")
    end = training.start(2, at, (300, 600), job_id="16")
    training.plan(2, 30_000)
    training.row("RUNNING", at, job_id="16", source="squeue")
    assert training.ahead(end + 1).num_starts > 4


def test_a_retry_in_place_does_not_restart_the_time_limit(training):
    at = training.begin
    training.start(1, at)
    training._end("train", 0, 1, "14", at, at + 3000, "failed", reason="rank 0 exit 1")
    training._attempt("train", 0, 2, "14", at + 3001, ("gpu-01",))
    end = training._steps(2, at + 3001, 0, 300)
    training.plan(2, 3000)
    training.row("RUNNING", at, source="squeue")
    assert end + 1 < at + 3600
    assert training.ahead(end + 1).num_starts == 1


def test_compiling_at_every_start_is_in_each_start_that_is_ahead(training):
    def compile_first(records):
        records["compile_s"][0] = 600
        records["step_s"][0] += 600
        records["start_unix_s"][1:] += 600

    at = training.begin
    for attempt in (1, 2):
        first = 400 * (attempt - 1)
        end = training.start(attempt, at, (first, first + 400)) + 600
        training.change(attempt, compile_first, num_steps=8000)
        training._end("train", 0, attempt, "14", at, end + 8, "stopped", reason="asked to stop")
        training.row("TIMEOUT", at, end + 9, limit_s=1200.0)
        at = end + 100
    found = training.ahead()
    # Of 1,200 s a start has 550 for steps: 7,200 steps of about 0.69 s are nine to ten starts.
    assert found.num_starts in {9, 10}
    assert found.seconds.low > 9 * 640 + 0.9 * 7200 * 0.69


def test_gpu_hours_of_starts_that_left_no_record_are_no_training_steps(training):
    at = training.begin
    training.row("NODE_FAIL", at, at + 3000)
    at += 3100
    end = training.start(1, at, (0, 400))
    training._end("train", 0, 1, "14", at, end + 5, "completed", result={})
    training.row("COMPLETED", at, end + 6)
    report = training.report()
    (train,) = [stage for stage in report.cost.stages if stage.stage == "train"]
    hours = {part.name: part.gpu_hours for part in train.parts}
    assert hours["starts that left no record"] == pytest.approx(2 * 3000 / 3600)
    assert sum(hours.values()) == pytest.approx(train.gpu_hours.value)
    assert hours["training steps"] < 2 * (end + 6 - at) / 3600
