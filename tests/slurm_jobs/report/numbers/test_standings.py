"""How a run and its stages stand: the word that `status` has for it, and no other."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from typing import get_args

import pytest

from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.numbers.standings import OverallStatus, Standing, overall_status
from slurm_jobs.run_folder.ledger import append_entry, intents, read_ledger
from slurm_jobs.run_folder.run_values import RunRecords, StageRecords, StageSummary
from slurm_jobs.run_folder.submission_lock import submitting
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.reconcile import reconcile
from slurm_jobs.status.slice_status import Status
from tests.slurm_jobs.report.builders import (
    NOT_STARTED,
    notes_with,
    report_from,
    report_on,
    stage_of,
    with_intents,
    with_rows,
    with_stage,
)
from tests.slurm_jobs.report.fabricate_array import report_on_ends

PENDING = {"state": "PENDING", "eligible_unix_s": None, "start_unix_s": None, "end_unix_s": None}


@pytest.fixture
def inputs(inputs_of):
    return inputs_of()


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        (None, "unknown", "no accounting of its end"),
        ("COMPLETED", "unknown", "COMPLETED"),
        ("NODE_FAIL", "failed", "NODE_FAIL"),
    ],
)
def test_slurms_word_explains_an_attempt_without_a_completion_record(inputs, state, status, reason):
    """Completed without a record is neither success nor failure."""
    ended = with_rows(inputs, "13", **({"state": state} if state else {}))
    report = report_from(with_stage(ended, "consolidate", completions=()))
    assert stage_of(report, "consolidate").status == report.header.status == status
    assert reason in report.header.status_reason
    if state is None:
        bar = next(b for b in report.bars if b.stage == "consolidate")
        (attempt,) = next(s for s in inputs.stages if s.name == "consolidate").attempts
        assert bar.end_unix_s == attempt.started_unix_s


def test_a_run_whose_training_goes_on_is_running(inputs_of):
    inputs = inputs_of(finished=False)
    rows = [row for row in inputs.accounting if row.job_id == "14"]
    end = rows[-1].end_unix_s
    live = replace(rows[-1], state="RUNNING", start_unix_s=end + 70, end_unix_s=None)
    running = with_rows(replace(inputs, read_unix_s=end + 200), "14", *rows, live)
    report = report_from(running)
    assert report.header.status == "running"
    assert report.header.last_unix_s == end + 200
    assert "report" not in {bar.stage for bar in report.bars}


def not_started(inputs, reason):
    """The report of a run whose training is in the queue for this reason."""
    waiting = with_rows(inputs, "14", **PENDING, reason=reason)
    return report_from(with_stage(waiting, "train", **NOT_STARTED))


def test_a_stage_that_never_started_leaves_the_run_waiting(inputs):
    report = not_started(inputs, "Priority")
    assert stage_of(report).status == report.header.status == "waiting"
    assert stage_of(report).status_reason == "1 of 1 not started (Priority)"
    assert report.header.last_unix_s == inputs.read_unix_s
    assert report.training == ()
    assert "no stage recorded training steps" in report.notes


@pytest.mark.parametrize("reason", ["DependencyNeverSatisfied", "NoRunner"])
def test_a_task_that_can_never_start_is_stranded_and_holds_no_end_open(inputs, reason):
    report = not_started(inputs, reason)
    assert stage_of(report).status == report.header.status == "stranded"
    ends = [c.ended_unix_s for s in inputs.stages if s.name != "train" for c in s.completions]
    assert report.header.last_unix_s == max(ends)
    assert report.verdict.startswith("Stranded after")


@pytest.mark.parametrize(("state", "status"), [("NODE_FAIL", "failed"), ("CANCELLED", "cancelled")])
def test_the_child_of_a_dead_parent_is_stranded(inputs, state, status):
    ended = with_rows(with_rows(inputs, "13", state=state), "14", **PENDING)
    ended = with_stage(with_stage(ended, "train", **NOT_STARTED), "consolidate", completions=())
    report = report_from(ended)
    assert stage_of(report, "consolidate").status == report.header.status == status
    assert stage_of(report).status == "stranded"
    assert f"`consolidate` {status}" in stage_of(report).status_reason
    assert report.header.last_unix_s < inputs.read_unix_s
    assert next(b for b in report.bars if b.stage == "consolidate").outcome == status


def test_a_task_that_was_stopped_and_waits_for_its_requeue_is_waiting(inputs):
    train = next(s for s in inputs.stages if s.name == "train")
    first = {
        "attempts": train.attempts[:1],
        "completions": train.completions[:1],
        "timings": tuple(t for t in train.timings if t.attempt == 1),
    }
    stopped = with_stage(inputs, "train", **first)
    assert stage_of(report_from(with_rows(stopped, "14", **PENDING))).status == "waiting"
    ended = stage_of(report_from(with_rows(stopped, "14", state="PREEMPTED")))
    assert ended.status == "failed"
    assert "`resume` continues from there" in ended.status_reason


@pytest.mark.parametrize(
    "state", ["PENDING", "RUNNING", "CANCELLED", "TIMEOUT", "PREEMPTED", "COMPLETED"]
)
def test_the_report_says_what_status_says_and_no_other_word(inputs, state):
    report = report_from(with_stage(with_rows(inputs, "14", state=state), "train", **NOT_STARTED))
    assert {s.status for s in report.stages} | {report.header.status} <= set(get_args(Status))


def test_a_ledger_that_cannot_be_read_is_named_and_the_records_count(run_of):
    paths, rows = run_of()
    next(paths.ledger_dir.glob("*2*.json")).write_text("{")
    report = report_on(paths, rows)
    assert notes_with(report, "completion records alone decide what is done, because ")
    assert report.header.status == "completed"


def test_a_submit_killed_before_its_first_intent_is_named_as_in_status(inputs_of):
    inputs = inputs_of(with_accounting=False)
    nothing = with_intents(inputs)
    for s in inputs.stages:
        nothing = with_stage(nothing, s.name, **NOT_STARTED)
    report = report_from(nothing)
    summaries = tuple(
        StageSummary(
            name=s.name, run=s.run, num_slices=s.num_slices, is_array=s.num_slices > 1,
            retries=0, fingerprint="", after=s.after,
        )
        for s in inputs.stages
    )  # fmt: skip
    records = {s.name: StageRecords(attempts={}, endings={}) for s in inputs.stages}
    status = reconcile(
        RunRecords(meta=None, stages=summaries, intents=(), records=records), Answer()
    )
    assert {s.name: s.status for s in report.stages} == {
        s.stage.name: s.status for s in status.stages
    }
    assert report.header.status == status.status == "stranded"
    assert "not submitted" in report.header.status_reason


# What squeue says besides the accounting.


@pytest.fixture
def at_work(run_of):
    """A training in its second attempt: paths, the other jobs' rows, and that of the first."""
    paths, rows = run_of(finished=False)
    (first,) = (row for row in rows if row.job_id == "14")
    return paths, [row for row in rows if row is not first], first


def answered(paths, rows, *, squeue=None, **values):
    """The report by these rows of accounting, and by what squeue has the training as."""
    tasks = {row.key: row for row in rows}
    if squeue is not None:
        (training,) = (i for i in intents(read_ledger(paths.ledger_dir)) if i.job_id == "14")
        tasks[training.job] = TaskAccounting(
            job_id="14", job_name=training.job_name, state=squeue, source="squeue"
        )
    answer = Answer(**{"tasks": tasks, "asked_unix_s": time.time(), **values})
    return report_from(read_inputs(paths, rows, answer))


def words(report):
    """Of the run, of the training, and of the training's last attempt."""
    bar = [bar for bar in report.bars if bar.stage == "train"][-1]
    return report.header.status, stage_of(report).status, bar.outcome


def second_row(first, state, *, lasted_s=None):
    end = None if lasted_s is None else first.end_unix_s + lasted_s
    return replace(first, state=state, start_unix_s=first.end_unix_s + 70, end_unix_s=end)


def test_what_squeue_has_running_is_running_before_accounting_knows_of_it(at_work):
    paths, others, _ = at_work
    report = answered(paths, others, squeue="RUNNING")
    assert words(report) == ("running",) * 3
    assert report.verdict.startswith("Still running after")
    assert report.header.last_unix_s == pytest.approx(time.time(), abs=60)


def test_what_squeue_has_waiting_is_waiting_before_accounting_knows_of_it(at_work):
    paths, others, first = at_work
    report = answered(paths, [*others, first], squeue="PENDING")
    assert words(report)[:2] == ("waiting", "waiting")


def test_what_still_ends_after_a_cancellation_is_running(at_work):
    paths, others, first = at_work
    append_entry(paths.ledger_dir, "cancelled", "t14", {})
    rows = [*others, first, second_row(first, "CANCELLED", lasted_s=3600)]
    assert words(answered(paths, rows, squeue="COMPLETING")) == ("running",) * 3
    assert words(answered(paths, rows)) == ("cancelled",) * 3


def test_what_squeue_knows_no_longer_does_not_run_because_accounting_lags(at_work):
    paths, others, first = at_work
    rows = [*others, first, second_row(first, "RUNNING")]
    known = {row.key: row for row in others}
    report = answered(paths, rows, tasks=known, lagging={first.key: "RUNNING"})
    assert words(report) == ("unknown",) * 3


@pytest.mark.parametrize(("knows_the_living", "status"), [(True, "failed"), (False, "unknown")])
def test_without_the_list_of_live_jobs_the_status_of_the_run_is_unknown(
    at_work, knows_the_living, status
):
    paths, others, first = at_work
    failed = second_row(first, "FAILED", lasted_s=3600)
    rows = [*(row for row in others if row.job_id != "13"), failed]
    for path in paths.completions_dir("consolidate").iterdir():
        path.unlink()
    assert words(answered(paths, rows, knows_the_living=knows_the_living))[0] == status


def test_what_a_command_is_about_to_submit_waits(at_work):
    paths, others, _ = at_work
    for path in sorted(paths.ledger_dir.iterdir())[4:]:  # so far `preprocess` and `consolidate`
        path.unlink()
    for folder in (paths.attempts_dir("train"), paths.completions_dir("train")):
        shutil.rmtree(folder)
    with submitting(paths):
        inputs = read_inputs(paths, others)
    report = report_from(inputs)
    assert report.header.status == "waiting"
    assert report.header.last_unix_s == inputs.read_unix_s
    assert report_on(paths, others).header.status == "stranded"


def test_several_failed_stages_are_counted_and_the_first_is_named():
    failed = Standing(status="failed", reason="exit code 3", slices={}, is_open=False)
    done = Standing(status="completed", reason="", slices={}, is_open=False)
    stages = [("prep", done), ("train", failed), ("big", failed)]
    assert overall_status(stages) == OverallStatus(
        status="failed", head="2 of 3 stages failed; train failed", reason="exit code 3"
    )
    assert overall_status(stages[:2]).head == "train failed"


def test_a_running_array_says_how_many_of_its_slices_failed(tmp_path):
    report = report_on_ends(tmp_path, ["completed", "failed", "timeout", "running"])
    assert report.header.status == "running"
    assert report.header.status_reason == "embed running: 2 of 4 slices failed"
    assert "(embed running: 2 of 4 slices failed)" in report.verdict
