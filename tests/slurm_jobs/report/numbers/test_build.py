from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.status import Status


def stage(report, name):
    return next(s for s in report.stages if s.name == name)


def rebuilt(inputs, name, **changes):
    """The report after the records of one stage were changed."""
    stages = tuple(
        dataclasses.replace(s, **changes) if s.name == name else s for s in inputs.stages
    )
    return build_report(dataclasses.replace(inputs, stages=stages), ReportConfig())


@pytest.fixture
def inputs(fabrication, tmp_path):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    return read_inputs(paths, rows)


def test_every_second_from_submit_to_end_is_shared_out_once(report_of):
    report = report_of()
    assert sum(s.share for s in report.timeline) == pytest.approx(1.0)
    wall_s = report.header.last_unix_s - report.header.created_unix_s
    assert sum(s.seconds for s in report.timeline) == pytest.approx(wall_s)


def test_with_full_accounting_nothing_is_unexplained(report_of):
    shares = {s.name: s.seconds for s in report_of().timeline}
    assert shares["unexplained"] == pytest.approx(0.0, abs=0.01)
    assert shares["requeue wait"] == pytest.approx(70.0)
    assert shares["consolidate running"] == pytest.approx(44.0)


def test_without_accounting_gaps_are_unexplained_and_the_reason_is_said(report_of):
    report = report_of(with_accounting=False)
    shares = {s.name: s.seconds for s in report.timeline}
    assert "queue wait" not in shares
    assert shares["unexplained"] > 250
    assert "no accounting" in report.timeline_note
    assert stage(report, "train").cpu_efficiency.value is None
    assert "no accounting" in stage(report, "train").cpu_efficiency.missing


def test_a_start_that_accounting_lacks_is_named(inputs):
    rows = tuple(row for row in inputs.accounting if row.job_id != "13")
    report = build_report(dataclasses.replace(inputs, accounting=rows), ReportConfig())
    assert "lacks 1 of 8 starts (jobs 13)" in report.timeline_note


def test_only_the_last_row_of_a_requeued_job_leaves_its_first_wait_unexplained(inputs):
    last_rows = {row.job_id: row for row in inputs.accounting}
    report = build_report(
        dataclasses.replace(inputs, accounting=tuple(last_rows.values())), ReportConfig()
    )
    shares = {s.name: s.seconds for s in report.timeline}
    assert "nothing submitted" not in shares
    assert "lacks 2 of 8 starts (jobs 12_1, 14)" in report.timeline_note


def test_what_a_job_spends_before_and_after_its_attempt_is_the_jobs_own(inputs):
    rows = tuple(
        dataclasses.replace(row, start_unix_s=row.start_unix_s - 4, end_unix_s=row.end_unix_s + 2)
        if row.job_id == "13"
        else row
        for row in inputs.accounting
    )
    report = build_report(dataclasses.replace(inputs, accounting=rows), ReportConfig())
    shares = {s.name: s.seconds for s in report.timeline}
    assert shares["job start, end, pauses"] == pytest.approx(6.0)
    assert shares["consolidate running"] == pytest.approx(44.0)


def test_a_retry_counts_as_an_attempt_and_its_failure_is_told(report_of):
    preprocess = stage(report_of(), "preprocess")
    assert (preprocess.num_tasks, preprocess.num_completed) == (4, 4)
    assert (preprocess.num_attempts, preprocess.num_retries) == (5, 1)
    assert preprocess.failures == (
        "preprocess, slice 1, attempt 1, job 12_1: rank 0 was killed by signal 9 (out of memory?)",
    )


def test_waits_and_task_times_are_those_of_the_records(report_of):
    preprocess = stage(report_of(), "preprocess")
    assert preprocess.dependency_wait_median_s.value == pytest.approx(1.0)
    assert preprocess.queue_wait_max_s.value == pytest.approx(37.0)
    assert preprocess.task_time.min_s == pytest.approx(380.0)
    assert preprocess.task_time.max_s == pytest.approx(410.0)
    assert preprocess.task_time.slowest.startswith("slice 3 ")
    assert preprocess.cpu_efficiency.value == pytest.approx(0.62)
    assert preprocess.max_running == 4


def test_a_requeued_job_has_its_two_rows_on_its_two_attempts(report_of):
    train = stage(report_of(), "train")
    assert train.queue_wait_max_s.value == pytest.approx(240.0)
    assert train.queue_wait_median_s.value == pytest.approx((240 + 68) / 2)


def test_an_attempt_without_an_end_is_neither_success_nor_failure(inputs):
    kept = next(s for s in inputs.stages if s.name == "consolidate")
    rows = tuple(row for row in inputs.accounting if row.job_id != "13")
    without = dataclasses.replace(inputs, accounting=rows)
    report = rebuilt(without, "consolidate", completions=())
    assert stage(report, "consolidate").status == "unknown"
    assert report.header.status == "unknown"
    bar = next(b for b in report.bars if b.stage == "consolidate")
    assert bar.end_unix_s == kept.attempts[0].started_unix_s


def test_slurms_word_explains_an_attempt_without_a_completion_record(inputs):
    rows = tuple(
        dataclasses.replace(row, state="NODE_FAIL") if row.job_id == "13" else row
        for row in inputs.accounting
    )
    report = rebuilt(dataclasses.replace(inputs, accounting=rows), "consolidate", completions=())
    assert stage(report, "consolidate").status == "failed"
    assert "NODE_FAIL" in report.header.status_reason


def test_a_stage_ran_for_as_long_as_one_of_its_attempts_did(report_of):
    report = report_of()
    first, second = (bar for bar in report.bars if bar.stage == "train")
    assert second.start_unix_s - first.end_unix_s > 60  # it waited for its requeue
    worked_s = sum(bar.end_unix_s - bar.start_unix_s for bar in (first, second))
    assert stage(report, "train").running_s.value == pytest.approx(worked_s)
    slices = [bar for bar in report.bars if bar.stage == "preprocess"]  # side by side
    span_s = max(b.end_unix_s for b in slices) - min(b.start_unix_s for b in slices)
    assert stage(report, "preprocess").running_s.value == pytest.approx(span_s)


def test_slurms_completed_without_a_record_is_neither_success_nor_failure(inputs):
    report = rebuilt(inputs, "consolidate", completions=())
    assert stage(report, "consolidate").status == "unknown"
    assert "COMPLETED" in report.header.status_reason


def test_a_run_whose_training_goes_on_is_running(fabrication, tmp_path):
    scenario = fabrication.Scenario(finished=False)
    paths, rows = fabrication.fabricate(tmp_path / "run", scenario)
    inputs = read_inputs(paths, rows)
    last = max(rows, key=lambda row: row.start_unix_s)
    live = dataclasses.replace(
        last, state="RUNNING", start_unix_s=last.end_unix_s + 70, end_unix_s=None
    )
    now = last.end_unix_s + 200
    running = dataclasses.replace(inputs, accounting=(*inputs.accounting, live), read_unix_s=now)
    report = build_report(running, ReportConfig())
    assert report.header.status == "running"
    assert report.header.last_unix_s == now
    assert "report" not in {bar.stage for bar in report.bars}


def test_the_report_stage_is_no_part_of_what_it_reports_on(report_of):
    report = report_of()
    assert stage(report, "report").status == "running"
    assert report.header.status == "completed"
    assert report.header.last_unix_s < report.header.created_unix_s + 3600


def with_row(inputs, job_id, **changes):
    """Of that job only the last row, changed."""
    last = [row for row in inputs.accounting if row.job_id == job_id][-1]
    others = tuple(row for row in inputs.accounting if row.job_id != job_id)
    changed = dataclasses.replace(last, **changes)
    return dataclasses.replace(inputs, accounting=(*others, changed))


NOT_STARTED = {"attempts": (), "completions": (), "timings": ()}
PENDING = {"state": "PENDING", "eligible_unix_s": None, "start_unix_s": None, "end_unix_s": None}


def test_a_stage_that_never_started_leaves_the_run_waiting(inputs):
    waiting = with_row(inputs, "14", **PENDING, reason="Priority")
    report = rebuilt(waiting, "train", **NOT_STARTED)
    assert stage(report, "train").status == "waiting"
    assert stage(report, "train").status_reason == "1 of 1 not started (Priority)"
    assert report.header.status == "waiting"
    assert report.header.last_unix_s == inputs.read_unix_s
    assert report.training == ()
    assert "no stage recorded training steps" in report.notes


def test_a_task_that_can_never_start_is_stranded_and_holds_no_end_open(inputs):
    never = with_row(inputs, "14", **PENDING, reason="DependencyNeverSatisfied")
    report = rebuilt(never, "train", **NOT_STARTED)
    assert (stage(report, "train").status, report.header.status) == ("stranded", "stranded")
    ends = [c.ended_unix_s for s in inputs.stages if s.name != "train" for c in s.completions]
    assert report.header.last_unix_s == max(ends)
    assert report.verdict.startswith("Stranded after")


def test_a_local_task_without_a_runner_is_stranded(inputs):
    report = rebuilt(with_row(inputs, "14", **PENDING, reason="NoRunner"), "train", **NOT_STARTED)
    assert stage(report, "train").status == "stranded"
    assert report.header.last_unix_s < inputs.read_unix_s


@pytest.mark.parametrize(
    ("state", "status"),
    [("NODE_FAIL", "failed"), ("CANCELLED", "cancelled")],
)
def test_the_child_of_a_dead_parent_is_stranded(inputs, state, status):
    ended = with_row(inputs, "13", state=state)
    ended = with_row(ended, "14", **PENDING)
    stages = tuple(
        dataclasses.replace(s, completions=())
        if s.name == "consolidate"
        else dataclasses.replace(s, **(NOT_STARTED if s.name == "train" else {}))
        for s in ended.stages
    )
    report = build_report(dataclasses.replace(ended, stages=stages), ReportConfig())
    assert stage(report, "consolidate").status == status
    assert stage(report, "train").status == "stranded"
    assert f"`consolidate` {status}" in stage(report, "train").status_reason
    assert report.header.status == status
    assert report.header.last_unix_s < inputs.read_unix_s
    assert next(b for b in report.bars if b.stage == "consolidate").outcome == status


def test_a_task_that_was_stopped_and_waits_for_its_requeue_is_waiting(inputs):
    train = next(s for s in inputs.stages if s.name == "train")
    first = {
        "attempts": train.attempts[:1],
        "completions": train.completions[:1],
        "timings": tuple(t for t in train.timings if t.attempt == 1),
    }
    report = rebuilt(with_row(inputs, "14", **PENDING), "train", **first)
    assert stage(report, "train").status == "waiting"
    ended = rebuilt(with_row(inputs, "14", state="PREEMPTED"), "train", **first)
    assert stage(ended, "train").status == "failed"
    assert "`resume` continues from there" in stage(ended, "train").status_reason


def test_the_report_says_what_status_says_and_no_other_word(inputs):
    words = set(get_args(Status))
    for state in ("PENDING", "RUNNING", "CANCELLED", "TIMEOUT", "PREEMPTED", "COMPLETED"):
        report = rebuilt(with_row(inputs, "14", state=state), "train", **NOT_STARTED)
        assert {s.status for s in report.stages} | {report.header.status} <= words


def test_a_ledger_that_cannot_be_read_is_named_and_the_records_count(fabrication, tmp_path):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    next(paths.ledger_dir.glob("*2*.json")).write_text("{")
    report = build_report(read_inputs(paths, rows), ReportConfig())
    assert any("not read as a ledger" in note for note in report.notes)
    assert report.header.status == "completed"
