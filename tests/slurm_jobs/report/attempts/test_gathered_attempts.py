"""Starts of jobs joined with attempts, whatever a node's clock says: none is lost, none twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.formats.records.attempt_records import CompletionRecord, TaskAccounting
from slurm_jobs.formats.timings.step_records import spans_path
from slurm_jobs.report.attempts.gathered_attempts import why_accounting_ends_it
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.stage import make_report
from tests.slurm_jobs.report.attempts.accounted import inputs, numbers_of
from tests.slurm_jobs.report.builders import (
    NOT_STARTED,
    add_span,
    change_steps,
    edited,
    notes_with,
    report_from,
    row_of,
    seconds_of,
    stage_of,
    with_intents,
    with_rows,
    with_stage,
)
from tests.slurm_jobs.report.fabricate_array import fabricate_array, report_on_ends

__all__ = ["inputs"]


def dead_start(row, *, length_s=200.0):
    """A start of the same job before the given one, whose supervisor never began."""
    end = row.start_unix_s - 40
    times = {"start_unix_s": end - length_s, "end_unix_s": end, "eligible_unix_s": end - 203}
    return replace(row, state="NODE_FAIL", num_gpus=2, **times)


def test_a_start_that_died_before_its_supervisor_counts_with_its_hours(inputs):
    row = row_of(inputs, "14")
    before, report = (
        report_from(each) for each in (inputs, with_rows(inputs, "14", dead_start(row), row))
    )
    train = stage_of(report)
    assert train.gpu_hours.value == pytest.approx(stage_of(before).gpu_hours.value + 200 * 2 / 3600)
    assert (train.num_attempts, train.num_retries, train.status) == (2, 1, "completed")
    reason = "NODE_FAIL before its supervisor started; see its log"
    assert train.failures == (f"train, slice 0, no attempt record, job 14: {reason}",)
    running_s = seconds_of(report.timeline)["train running"]
    assert running_s == pytest.approx(seconds_of(before.timeline)["train running"])
    assert report.training[0].num_attempts == 1


@pytest.mark.parametrize("lasted_s", [44.0, 0.0])  # Slurm counts whole seconds
def test_a_job_with_a_failing_set_up_line_has_a_failure_and_hours(inputs, lasted_s):
    start = row_of(inputs, "13").start_unix_s
    failed = {"state": "FAILED", "exit_code": 1, "node_list": "cpu1"}
    failed["end_unix_s"] = start + lasted_s
    without = with_stage(inputs, "consolidate", **NOT_STARTED)
    stage = numbers_of(with_rows(without, "13", **failed), "consolidate")
    assert stage.status == "failed"
    assert len(stage.failures) == 1
    assert "FAILED before its supervisor started" in stage.failures[0]
    assert (stage.running_s.value or 0.0) == pytest.approx(lasted_s)
    assert stage.cpu_hours.value == pytest.approx(4 * lasted_s / 3600)
    assert (stage.num_attempts, stage.num_retries) == (1, 0)


def test_attempts_of_one_start_share_its_row_which_counts_once(inputs):
    """A retry in place, or the next slice of an element that works through several."""
    train = next(s for s in inputs.stages if s.name == "train")
    (first,), (ended,) = train.attempts, train.completions
    second = replace(first, attempt=2, started_unix_s=first.started_unix_s + 60)
    changed = {"attempts": (first, second), "completions": (replace(ended, attempt=2),)}
    after = numbers_of(with_stage(inputs, "train", **changed))
    assert after.gpu_hours == numbers_of(inputs).gpu_hours
    assert (after.num_attempts, after.num_retries) == (2, 1)


def test_slices_that_one_element_works_through_share_its_row(inputs):
    """Elements 12_0 and 12_1 have two slices each: two rows, four attempts, no retry."""
    stage = next(s for s in inputs.stages if s.name == "preprocess")

    def packed(record, **changes):
        return replace(record, attempt=1, job_id=f"12_{record.slice_index // 2}", **changes)

    attempts = tuple(
        packed(a, restart=0) for a in stage.attempts if (a.slice_index, a.attempt) != (1, 1)
    )
    completions = tuple(packed(c) for c in stage.completions if c.outcome == "completed")
    begun = row_of(inputs, "12_0").start_unix_s
    ended = max(c.ended_unix_s for c in completions)
    rows = [
        replace(row_of(inputs, "12_0"), job_id=job_id, start_unix_s=begun, end_unix_s=ended)
        for job_id in ("12_0", "12_1")
    ]
    others = [row for row in inputs.accounting if not row.job_id.startswith("12_")]
    intents = tuple(
        replace(i, slices_per_task=2) if i.stage == "preprocess" else i for i in inputs.intents
    )
    changed = with_stage(inputs, "preprocess", attempts=attempts, completions=completions)
    changed = with_intents(replace(changed, accounting=(*rows, *others)), *intents)
    report = report_from(changed)
    stage = stage_of(report, "preprocess")
    assert (stage.num_attempts, stage.num_retries, stage.failures) == (4, 0, ())
    assert stage.cpu_hours.value == pytest.approx(2 * 4 * (ended - begun) / 3600)
    assert report.timeline_note == ""
    lost = replace(changed, accounting=(dead_start(rows[1]), *changed.accounting))
    stage = numbers_of(lost, "preprocess")
    assert (stage.num_attempts, stage.num_retries) == (5, 1)
    assert "slice 2, no attempt record, job 12_1: NODE_FAIL" in stage.failures[0]


def with_clock(inputs, skew_s):
    """The nodes of the training told the time by a clock that is off by so much."""

    def moved(record):
        names = {"started_unix_s", "ended_unix_s"} & set(type(record).__dataclass_fields__)
        return replace(record, **{name: getattr(record, name) + skew_s for name in names})

    return with_stage(inputs, "train", attempts=moved, completions=moved)


@pytest.mark.parametrize("skew_s", [-600.0, -120.0, -60.0, -30.0, -10.0, -4.0, 60.0, 600.0])
@pytest.mark.parametrize(("stopped_at", "num_attempts"), [(None, 1), (170, 2)])
def test_no_attempt_counts_twice_where_a_nodes_clock_is_off(
    inputs_of, skew_s, stopped_at, num_attempts
):
    inputs = inputs_of(stopped_at=stopped_at)
    before, after = numbers_of(inputs), numbers_of(with_clock(inputs, skew_s))
    assert after.num_attempts == before.num_attempts == num_attempts
    assert after.failures == ()
    assert after.gpu_hours == before.gpu_hours
    assert not after.gpu_hours.at_least


@pytest.mark.parametrize("skew_s", [-60.0, -10.0, 60.0])
def test_an_attempt_that_runs_counts_once_where_its_nodes_clock_is_off(inputs, skew_s):
    row = row_of(inputs, "14")
    runs = with_rows(inputs, "14", state="RUNNING", end_unix_s=None)
    runs = with_stage(replace(runs, read_unix_s=row.end_unix_s), "train", completions=())
    found = numbers_of(with_clock(runs, skew_s))
    assert (found.num_attempts, found.max_running) == (1, 1)
    lasted_s = row.end_unix_s - row.start_unix_s
    assert found.gpu_hours.value == pytest.approx(2 * lasted_s / 3600)


def test_a_short_attempt_whose_clock_is_ahead_counts_once(inputs):
    short = with_rows(inputs, "14", end_unix_s=row_of(inputs, "14").start_unix_s + 31)
    short = with_stage(
        short,
        "train",
        completions=lambda c: replace(c, ended_unix_s=c.started_unix_s + 30),
        timings=(),
    )
    assert numbers_of(with_clock(short, 60.0)).num_attempts == 1


@pytest.fixture
def set_clock(run_of):
    """Make the inputs of a training in whose middle the clock of its node was set."""

    def make(by_s):
        paths, rows = run_of(stopped_at=None)
        folder = paths.timing_dir("train", 0, 1)
        middles = []

        def move(steps):
            middles.append(steps["start_unix_s"][200])
            steps["start_unix_s"][200:] += by_s

        change_steps(folder, move)
        inputs = read_inputs(paths, rows)
        train = next(s for s in inputs.stages if s.name == "train")
        for timing in train.timings:
            spans_path(folder, timing.rank).write_text("")
            for span in timing.spans:
                late = by_s * (span["start_unix_s"] > middles[0])
                add_span(
                    folder, timing.rank, **{**span, "start_unix_s": span["start_unix_s"] + late}
                )
        return with_stage(
            read_inputs(paths, rows),
            "train",
            completions=lambda c: replace(c, ended_unix_s=c.ended_unix_s + by_s),
        )

    return make


@pytest.mark.parametrize("by_s", [-1800.0, 1800.0])
def test_a_clock_that_is_set_during_a_job_neither_erases_nor_invents_time(set_clock, by_s):
    right, report = report_from(set_clock(0.0)), report_from(set_clock(by_s))
    assert report.header.last_unix_s == pytest.approx(right.header.last_unix_s)
    assert seconds_of(report.timeline) == pytest.approx(seconds_of(right.timeline))
    lasted, found = (seconds_of(each.training[0].budget) for each in (right, report))
    assert found["steps"] == pytest.approx(lasted["steps"], rel=0.01)
    assert found["unexplained"] < lasted["unexplained"] + 10
    assert sum(found.values()) == pytest.approx(sum(lasted.values()))
    (note,) = notes_with(report, "by the accounting")
    assert note.startswith("train, slice 0, attempt 1, job 14: by its node's clock it took ")
    assert not notes_with(right, "by the accounting")


@pytest.mark.parametrize(
    ("begun", "ended", "is_set"),
    [
        pytest.param(1400.0, 1999.0, False, id="set-up lines took 400 s"),
        pytest.param(400.0, 1399.0, False, id="600 s behind"),
        pytest.param(1600.0, 2599.0, False, id="600 s ahead"),
        pytest.param(1001.0, 1900.0, True, id="set back"),
        pytest.param(1001.0, 2100.0, True, id="set forward"),
    ],
)
def test_set_up_lines_and_a_constantly_wrong_clock_contradict_nothing(begun, ended, is_set):
    row = TaskAccounting(
        job_id="1", state="COMPLETED", source="sacct", start_unix_s=1000.0, end_unix_s=2000.0
    )
    completion = CompletionRecord(
        stage="train", slice_index=0, attempt=1, job_id="1", token="t", outcome="completed",
        fingerprint="f", started_unix_s=begun, ended_unix_s=ended, exit_code=0,
    )  # fmt: skip
    assert (why_accounting_ends_it(begun, completion, row) is not None) is is_set


def test_an_attempt_that_scancel_ended_is_cancelled_and_no_failure(tmp_path):
    report = report_on_ends(tmp_path, ["completed", "scancelled", "failed"])
    assert [bar.outcome for bar in report.bars] == ["completed", "cancelled", "failed"]
    stage = stage_of(report, "embed")
    assert stage.slices == {"completed": "0", "cancelled": "1", "failed": "2"}
    assert (stage.num_failed, len(stage.failures)) == (1, 1)
    assert report.bars[1].reason.startswith("sacct says CANCELLED. After SIGTERM from outside")


def test_a_timeout_stays_a_failure_with_its_reason(tmp_path):
    report = report_on_ends(tmp_path, ["timeout", "completed"])
    assert report.bars[0].outcome == "failed"
    assert stage_of(report, "embed").failures[0].endswith("sacct says TIMEOUT")


@pytest.mark.parametrize(("later_s", "outcome"), [(2.0, "cancelled"), (60.0, "failed")])
def test_an_attempt_that_failed_long_before_the_cancel_is_a_failure(tmp_path, later_s, outcome):
    run = fabricate_array(tmp_path, ["failed"])
    (row,) = run.accounting
    row = replace(row, state="CANCELLED", end_unix_s=row.end_unix_s + later_s)
    answer = replace(run.answer, tasks={row.key: row})
    report = make_report(run.paths, [row], answer=answer)
    assert report.bars[0].outcome == outcome


def test_a_record_that_says_it_was_asked_to_stop_needs_no_clock(tmp_path):
    run = fabricate_array(tmp_path, ["scancelled"])
    (file,) = run.paths.completions_dir("embed").iterdir()
    with edited(file) as record:
        record |= {"stop_request": "sigterm", "ended_unix_s": record["ended_unix_s"] - 60}
    assert make_report(run.paths, run.accounting, answer=run.answer).bars[0].outcome == "cancelled"


def test_without_sacct_squeue_says_that_an_attempt_was_cancelled(tmp_path):
    run = fabricate_array(tmp_path, ["scancelled"])
    row = replace(run.accounting[0], source="squeue", end_unix_s=None)
    report = make_report(run.paths, [], answer=replace(run.answer, tasks={row.key: row}))
    assert [bar.outcome for bar in report.bars] == ["cancelled"]
    assert report.header.status == "cancelled"
