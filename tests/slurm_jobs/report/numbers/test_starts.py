"""What a start costs beside its steps, and what the projection makes of starts that went wrong."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.records import TaskAccounting
from slurm_jobs.shared.timings import spans_path
from tests.slurm_jobs.report.fabricate_run import Fabricator
from tests.slurm_jobs.report.fabricate_steps import CREATED, STEP_DTYPE, Scenario


class Training(Fabricator):
    """A run of which the training is made start by start, and still goes on."""

    def __init__(self, run_dir, **properties) -> None:
        super().__init__(run_dir, Scenario(stopped_at=None, finished=False, **properties))
        self._write_run()
        self.begin = self._consolidate(self._preprocess() + 20) + 5

    def start(self, attempt, at, steps=None, *, job_id="14"):
        """An attempt, with its steps if it comes to any; when its loop ended."""
        self._attempt("train", 0, attempt, job_id, at, ("gpu-01",))
        return at if steps is None else self._steps(attempt, at, *steps)

    def row(self, state, at, end=None, *, job_id="14", limit_s=3600.0, **values):
        self.accounting.append(
            TaskAccounting(
                **{
                    "job_id": job_id, "state": state, "source": "sacct",
                    "submit_unix_s": CREATED + 4, "eligible_unix_s": at - 5, "start_unix_s": at,
                    "end_unix_s": end, "num_cpus": 4, "num_gpus": 2, "time_limit_s": limit_s,
                    "node_list": "gpu-01", **values,
                }
            )
        )  # fmt: skip

    def change(self, attempt, change, **metadata):
        """Rewrite the step records of both ranks."""
        for path in sorted(self.paths.timing_dir("train", 0, attempt).glob("rank-*.steps")):
            header, _, body = path.read_bytes().partition(b"\n")
            said = json.loads(header)
            said["metadata"] |= metadata
            records = np.frombuffer(body, STEP_DTYPE).copy()
            change(records)
            path.write_bytes(json.dumps(said).encode() + b"\n" + records.tobytes())

    def plan(self, attempt, num_steps):
        """Say in the records how many steps the training is to have."""
        self.change(attempt, lambda records: None, num_steps=num_steps)

    def report(self, now=None):
        inputs = read_inputs(self.paths, self.accounting)
        if now is not None:
            inputs = dataclasses.replace(inputs, read_unix_s=now)
        return build_report(inputs, ReportConfig())

    def ahead(self, now=None):
        (found,) = self.report(now).projections
        return found


@pytest.fixture
def training(tmp_path):
    return Training(tmp_path / "run")


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
    assert not any("time limit leaves" in note for note in report.notes)


def test_a_hang_after_the_last_step_is_no_part_of_a_start(training):
    at = training.begin
    training.start(1, at, (0, 400))
    training.row("TIMEOUT", at, at + 3600)
    training.plan(1, 20_000)
    report = training.report()
    assert report.training[0].start_s == pytest.approx(30.8 + 7.5, abs=1)
    assert report.projections[0].num_starts < 6


@pytest.mark.parametrize(("loaded", "left"), [(None, 900), (150, 850)])
def test_steps_that_a_kill_lost_are_ahead_while_the_next_start_has_made_none(
    training, loaded, left
):
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
        folder.mkdir(parents=True)
        span = {"name": "checkpoint_load", "start_unix_s": end + 70, "duration_s": 1.0}
        spans_path(folder, 0).write_text(json.dumps(span | {"step": loaded}) + "\n")
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
    (stage,) = [stage for stage in report.stages if stage.name == "train"]
    assert (stage.time_limit_s.value, stage.requested_mem_bytes.value) == (3600, 32e9)
    outcomes = {check.rule_id: (check.outcome, check.reason) for check in report.checks}
    assert outcomes["time-request:train"] == ("clear", "94 % of the time limit was used")
    assert outcomes["memory-request:train"][0] == "clear"


def test_the_starts_ahead_are_of_the_limit_that_a_resume_asked_for(training):
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


def test_a_retry_in_place_does_not_begin_the_time_limit_anew(training):
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


def test_without_a_warm_up_all_that_the_first_steps_take_is_in_the_pace(training):
    training.start(1, training.begin, (0, 400))
    inputs = read_inputs(training.paths, training.accounting)
    (found,) = build_report(inputs, ReportConfig(warmup_steps=0)).training
    assert found.pace.warmup_s == 0
    assert found.pace.num_steps == 400


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
