"""Starts of jobs joined with attempts: none is lost, and none counts twice."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from slurm_jobs.report.html import render_html
from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.report.report_model import report_to_json
from slurm_jobs.report.terminal import print_report
from slurm_jobs.shared import units
from slurm_jobs.shared.configs.stages import ReportConfig


@pytest.fixture
def inputs(fabrication, tmp_path):
    scenario = fabrication.Scenario(stopped_at=None)
    paths, rows = fabrication.fabricate(tmp_path / "run", scenario)
    return read_inputs(paths, rows)


def stage_of(inputs, name="train"):
    report = build_report(inputs, ReportConfig())
    return report, next(s for s in report.stages if s.name == name)


def with_rows(inputs, job_id, make):
    """The rows of one job replaced by what `make` makes of its last one."""
    last = [row for row in inputs.accounting if row.job_id == job_id][-1]
    others = tuple(row for row in inputs.accounting if row.job_id != job_id)
    return dataclasses.replace(inputs, accounting=(*others, *make(last)))


def without_records(inputs, name):
    stages = tuple(
        dataclasses.replace(s, attempts=(), completions=(), timings=()) if s.name == name else s
        for s in inputs.stages
    )
    return dataclasses.replace(inputs, stages=stages)


def dead_start(row, *, length_s=200.0, state="NODE_FAIL"):
    """A start of the same job before the given one, whose supervisor never began."""
    end = row.start_unix_s - 40
    return dataclasses.replace(
        row, state=state, start_unix_s=end - length_s, end_unix_s=end, num_gpus=2,
        eligible_unix_s=end - length_s - 3,
    )  # fmt: skip


def test_a_start_that_died_before_its_supervisor_counts_with_its_hours_and_its_failure(inputs):
    _, before = stage_of(inputs)
    lost = with_rows(inputs, "14", lambda row: (dead_start(row), row))
    report, train = stage_of(lost)
    assert train.gpu_hours.value == pytest.approx(before.gpu_hours.value + 200 * 2 / 3600)
    assert (train.num_attempts, train.num_retries) == (2, 1)
    reason = "NODE_FAIL before its supervisor started; see its log"
    assert train.failures == (f"train, slice 0, no attempt record, job 14: {reason}",)
    assert train.status == "completed"
    shares = {s.name: s.seconds for s in report.timeline}
    running = {s.name: s.seconds for s in build_report(inputs, ReportConfig()).timeline}
    assert shares["train running"] == pytest.approx(running["train running"])
    assert report.training[0].num_attempts == 1


def test_a_job_whose_set_up_line_fails_has_a_failure_a_running_time_and_hours(inputs):
    failed = with_rows(
        without_records(inputs, "consolidate"),
        "13",
        lambda row: (dataclasses.replace(row, state="FAILED", exit_code=1),),
    )
    _, stage = stage_of(failed, "consolidate")
    assert stage.status == "failed"
    assert len(stage.failures) == 1
    assert "FAILED before its supervisor started" in stage.failures[0]
    assert stage.running_s.value == pytest.approx(44.0)
    assert stage.cpu_hours.value == pytest.approx(4 * 44 / 3600)
    assert (stage.num_attempts, stage.num_retries) == (1, 0)


def test_a_start_that_lasted_less_than_a_second_has_no_hours_and_is_not_called_unknown(inputs):
    """Slurm counts whole seconds: a set-up line that fails ends in the one in which it began."""
    failed = with_rows(
        without_records(inputs, "consolidate"),
        "13",
        lambda row: (
            dataclasses.replace(row, state="FAILED", node_list="cpu1", end_unix_s=row.start_unix_s),
        ),
    )
    _, stage = stage_of(failed, "consolidate")
    assert (stage.num_attempts, len(stage.failures)) == (1, 1)
    assert stage.cpu_hours.value == 0.0


def test_a_job_cancelled_in_the_queue_is_no_start(inputs):
    cancelled = with_rows(
        without_records(inputs, "train"),
        "14",
        lambda row: (dataclasses.replace(row, state="CANCELLED", start_unix_s=row.end_unix_s),),
    )
    _, train = stage_of(cancelled)
    assert (train.num_attempts, train.failures, train.running_s.value) == (0, (), None)


def test_attempts_of_one_start_share_its_row_which_counts_once(inputs):
    """A retry in place, or the next slice of an element that works through several."""
    train = next(s for s in inputs.stages if s.name == "train")
    second = dataclasses.replace(
        train.attempts[0], attempt=2, started_unix_s=train.attempts[0].started_unix_s + 60
    )
    ended = dataclasses.replace(train.completions[0], attempt=2)
    stages = tuple(
        dataclasses.replace(s, attempts=(*s.attempts, second), completions=(ended,))
        if s.name == "train"
        else s
        for s in inputs.stages
    )
    _, before = stage_of(inputs)
    _, after = stage_of(dataclasses.replace(inputs, stages=stages))
    assert after.gpu_hours == before.gpu_hours
    assert (after.num_attempts, after.num_retries) == (2, 1)


def test_slices_that_one_element_works_through_share_its_row(inputs):
    """Elements 12_0 and 12_1 have two slices each: two rows, four attempts, no retry."""
    preprocess = next(s for s in inputs.stages if s.name == "preprocess")

    def packed(record):
        return dataclasses.replace(record, job_id=f"12_{record.slice_index // 2}")

    attempts = tuple(packed(a) for a in preprocess.attempts if (a.slice_index, a.attempt) != (1, 1))
    attempts = tuple(dataclasses.replace(a, attempt=1, restart=0) for a in attempts)
    completions = tuple(
        dataclasses.replace(packed(c), attempt=1)
        for c in preprocess.completions
        if c.outcome == "completed"
    )
    rows = [row for row in inputs.accounting if row.job_id in {"12_0", "12_1"}][:2]
    start, end = rows[0].start_unix_s, max(c.ended_unix_s for c in completions)
    rows = [
        dataclasses.replace(
            row, job_id=f"12_{i}", state="COMPLETED", start_unix_s=start, end_unix_s=end
        )
        for i, row in enumerate(rows)
    ]
    others = [row for row in inputs.accounting if not row.job_id.startswith("12_")]
    stages = tuple(
        dataclasses.replace(s, attempts=attempts, completions=completions)
        if s.name == "preprocess"
        else s
        for s in inputs.stages
    )
    intents = tuple(
        dataclasses.replace(i, slices_per_task=2) if i.stage == "preprocess" else i
        for i in inputs.intents
    )
    changed = dataclasses.replace(
        inputs, stages=stages, accounting=(*rows, *others), intents=intents
    )
    report, stage = stage_of(changed, "preprocess")
    assert (stage.num_attempts, stage.num_retries, stage.failures) == (4, 0, ())
    assert stage.cpu_hours.value == pytest.approx(2 * 4 * (end - start) / 3600)
    assert report.timeline_note == ""
    lost = dataclasses.replace(changed, accounting=(dead_start(rows[1]), *changed.accounting))
    _, stage = stage_of(lost, "preprocess")
    assert (stage.num_attempts, stage.num_retries) == (5, 1)
    assert "slice 2, no attempt record, job 12_1: NODE_FAIL" in stage.failures[0]


def last_rows_only(fabrication, run_dir, *, num_steps=400, **changes):
    """Of a training that was requeued once only the last start has a row."""
    paths, rows = fabrication.fabricate(run_dir, fabrication.Scenario(num_steps=num_steps))
    last = {row.job_id: dataclasses.replace(row, **changes) for row in rows}
    return read_inputs(paths, tuple(last.values()))


def test_hours_of_a_task_whose_earlier_start_has_no_row_are_lower_bounds(fabrication, tmp_path):
    inputs = last_rows_only(fabrication, tmp_path / "run", source="local")
    report, train = stage_of(inputs)
    reason = "the accounting lacks 1 of 2 starts (the local scheduler keeps only a task's last)"
    for number in (train.cpu_hours, train.gpu_hours, train.longest_s, train.queue_wait_max_s):
        assert number.value > 0
        assert number.at_least == reason
    assert train.max_rss_bytes.at_least == reason
    note = next(n for n in report.notes if n.startswith("train: hours, longest job, "))
    assert note.endswith(reason)
    console = Console(file=io.StringIO(), width=250)
    print_report(report, console)
    assert note in console.file.getvalue()
    assert units.quantity(train.cpu_hours) in render_html(report)
    assert units.quantity(train.cpu_hours).startswith("at least ")
    written = next(s for s in report_to_json(report)["stages"] if s["name"] == "train")
    assert written["gpu_hours"]["at_least"] == reason
    consolidate = next(s for s in report.stages if s.name == "consolidate")
    assert consolidate.cpu_hours.at_least == ""


def test_no_advice_to_ask_for_less_rests_on_a_lower_bound(fabrication, tmp_path):
    inputs = last_rows_only(
        fabrication,
        tmp_path / "run",
        num_steps=1500,
        time_limit_s=36_000,
        requested_mem_bytes=64e9,
    )
    report, train = stage_of(inputs)
    assert train.longest_s.at_least == "the accounting lacks 1 of 2 starts"
    rules = {"time-request:train", "memory-request:train"}
    reasons = {c.rule_id: c.reason for c in report.checks if c.outcome == "abstained"}
    assert rules <= set(reasons)
    assert all("lower bound" in reasons[rule] for rule in rules)


def test_with_a_row_for_every_start_nothing_is_a_lower_bound(inputs):
    report, train = stage_of(inputs)
    assert (train.cpu_hours.at_least, train.max_rss_bytes.at_least) == ("", "")
    assert not any("lower bound" in note for note in report.notes)


def unended(inputs, *, state="RUNNING"):
    """The training's second start has no end in the accounting, and left no completion."""
    rows = tuple(
        dataclasses.replace(r, end_unix_s=None, state=state, max_rss_bytes=None, cpu_time_s=None)
        if r.job_id == "14" and r.state == "COMPLETED"
        else r
        for r in inputs.accounting
    )
    stages = tuple(
        dataclasses.replace(s, completions=s.completions[:-1]) if s.name == "train" else s
        for s in inputs.stages
    )
    return dataclasses.replace(inputs, accounting=rows, stages=stages)


@pytest.fixture
def requeued(fabrication, tmp_path):
    return read_inputs(*fabrication.fabricate(tmp_path / "requeued", fabrication.Scenario()))


def test_a_start_that_runs_counts_up_to_when_the_records_were_read(requeued):
    started = next(
        r.start_unix_s for r in requeued.accounting if (r.job_id, r.state) == ("14", "COMPLETED")
    )
    ended_s = next(
        r.end_unix_s - r.start_unix_s for r in requeued.accounting if r.state == "PREEMPTED"
    )
    open_inputs = dataclasses.replace(unended(requeued), read_unix_s=started + 7200)
    report, train = stage_of(open_inputs)
    assert train.status == "running"
    assert train.gpu_hours.value == pytest.approx(2 * (7200 + ended_s) / 3600)
    assert train.longest_s.value == pytest.approx(7200)
    assert (train.gpu_hours.at_least, train.longest_s.at_least) == ("", "")
    assert train.max_rss_bytes.at_least == "1 of 2 starts have not ended in the accounting"
    assert any(n.startswith("train: memory is a lower bound, ") for n in report.notes)
    reasons = {c.rule_id: c.reason for c in report.checks}
    assert reasons["time-request:train"] == "the stage is not completed"


def test_a_start_whose_end_nobody_tells_counts_to_its_last_sign_of_life_at_least(requeued):
    _, ended = stage_of(requeued)
    lost = dataclasses.replace(unended(requeued, state="NODE_FAIL"), read_unix_s=2e9)
    _, train = stage_of(lost)
    reason = "the accounting lacks the end of 1 of 2 starts"
    for number, most in ((train.gpu_hours, ended.gpu_hours), (train.longest_s, ended.longest_s)):
        assert number.at_least == reason
        assert 0.9 * most.value < number.value <= most.value


def test_a_start_that_left_neither_record_nor_end_has_no_hours_that_are_guessed(requeued):
    lost = unended(without_records(requeued, "train"), state="NODE_FAIL")
    _, train = stage_of(dataclasses.replace(lost, read_unix_s=2e9))
    assert train.longest_s.at_least == "the accounting lacks the end of 1 of 2 starts"
    assert train.longest_s.value < 3600


@pytest.mark.parametrize("behind_s", [4.0, 30.0, 120.0])
def test_a_node_whose_clock_is_behind_has_no_attempt_twice(inputs, behind_s):
    _, before = stage_of(inputs)
    stages = tuple(
        dataclasses.replace(
            s,
            attempts=tuple(
                dataclasses.replace(a, started_unix_s=a.started_unix_s - behind_s)
                for a in s.attempts
            ),
            completions=tuple(
                dataclasses.replace(
                    c,
                    started_unix_s=c.started_unix_s - behind_s,
                    ended_unix_s=c.ended_unix_s - behind_s,
                )
                for c in s.completions
            ),
        )
        if s.name == "train"
        else s
        for s in inputs.stages
    )
    _, after = stage_of(dataclasses.replace(inputs, stages=stages))
    assert after.num_attempts == before.num_attempts == 1
    assert after.gpu_hours.value == pytest.approx(before.gpu_hours.value)
    assert not after.gpu_hours.at_least
