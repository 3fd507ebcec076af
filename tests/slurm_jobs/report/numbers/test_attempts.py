"""Starts of jobs joined with attempts, whatever a node's clock says: none is lost, none twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.base import units
from slurm_jobs.formats.records.attempt_records import CompletionRecord, TaskAccounting
from slurm_jobs.formats.timings.step_records import spans_path
from slurm_jobs.report.attempts.gathered_attempts import why_end_is_the_rows
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.values.report_model import report_to_json
from tests.slurm_jobs.report.builders import (
    NOT_STARTED,
    add_span,
    change_steps,
    check,
    notes_with,
    printed,
    report_from,
    row_of,
    seconds_of,
    stage_of,
    with_intents,
    with_rows,
    with_stage,
)


@pytest.fixture
def inputs(inputs_of):
    return inputs_of(stopped_at=None)


@pytest.fixture
def requeued(inputs_of):
    return inputs_of()


def numbers_of(inputs, name="train"):
    return stage_of(report_from(inputs), name)


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


def test_a_job_cancelled_in_the_queue_is_no_start(inputs):
    without = with_stage(inputs, "train", **NOT_STARTED)
    end = row_of(inputs, "14").end_unix_s
    train = numbers_of(with_rows(without, "14", state="CANCELLED", start_unix_s=end))
    assert (train.num_attempts, train.failures, train.running_s.value) == (0, (), None)


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


def last_rows_only(inputs, **changes):
    """Of a training that was requeued once only the last start has a row."""
    last = {row.job_id: replace(row, **changes) for row in inputs.accounting}
    return replace(inputs, accounting=tuple(last.values()))


def test_hours_of_a_task_whose_earlier_start_has_no_row_are_lower_bounds(requeued):
    report = report_from(last_rows_only(requeued, source="local"))
    train = stage_of(report)
    reason = "the accounting lacks 1 of 2 starts (the local scheduler keeps only a task's last)"
    for number in (train.cpu_hours, train.gpu_hours, train.longest_s, train.queue_wait_max_s):
        assert number.value > 0
        assert number.at_least == reason
    assert train.max_rss_bytes.at_least == reason
    (note,) = notes_with(report, "train: hours, longest job, ")
    assert note.endswith(reason)
    assert note in printed(report, 250)
    assert units.quantity(train.cpu_hours) in render_html(report)
    assert units.quantity(train.cpu_hours).startswith("at least ")
    written = next(s for s in report_to_json(report)["stages"] if s["name"] == "train")
    assert written["gpu_hours"]["at_least"] == reason
    assert stage_of(report, "consolidate").cpu_hours.at_least == ""


def test_no_advice_to_ask_for_less_rests_on_a_lower_bound(inputs_of):
    asked = {"time_limit_s": 36_000, "requested_mem_bytes": 64e9}
    report = report_from(last_rows_only(inputs_of(num_steps=1500), **asked))
    assert stage_of(report).longest_s.at_least == "the accounting lacks 1 of 2 starts"
    for rule in ("time-request", "memory-request"):
        found = check(report, rule)
        assert (found.outcome, "lower bound" in found.reason) == ("abstained", True)


def test_with_a_row_for_every_start_nothing_is_a_lower_bound(inputs):
    report = report_from(inputs)
    train = stage_of(report)
    assert (train.cpu_hours.at_least, train.max_rss_bytes.at_least) == ("", "")
    assert not notes_with(report, "lower bound")


@pytest.mark.parametrize(
    ("tasks_per_node", "sampled", "shown"),
    [
        (1, 23.3 * 2**20, "at least 320 of 320 MiB, killed"),
        (1, None, "at least 320 of 320 MiB, killed"),
        (1, 350 * 2**20, "at least 350 of 320 MiB, killed"),
        (2, 23.3 * 2**20, "at least 160 of 320 MiB, killed"),
    ],
)
def test_a_task_killed_for_its_memory_used_at_least_its_limit(
    inputs, tasks_per_node, sampled, shown
):
    (train,) = (stage for stage in inputs.stages if stage.name == "train")
    resources = {**train.resources, "tasks_per_node": tasks_per_node}
    row = {"state": "OUT_OF_MEMORY", "requested_mem_bytes": 320 * 2**20, "max_rss_bytes": sampled}
    report = report_from(with_rows(with_stage(inputs, "train", resources=resources), "14", **row))
    assert stage_of(report).max_rss_bytes.at_least == "it was killed at its memory limit"
    assert shown in printed(report, 250)
    assert shown in render_html(report)


def test_a_larger_task_than_the_killed_one_is_shown_as_measured(inputs):
    first, *_ = (row for row in inputs.accounting if row.job_id == "14")
    killed = replace(first, state="OUT_OF_MEMORY", requested_mem_bytes=2.0**20, max_rss_bytes=None)
    whole = replace(first, max_rss_bytes=2.0**30)
    report = report_from(with_rows(inputs, "14", killed, whole))
    assert units.quantity(stage_of(report).max_rss_bytes) == "1.00 GiB"
    assert not stage_of(report).is_largest_killed


def unended(inputs, *, state="RUNNING"):
    """The training's second start has no end in the accounting, and left no completion."""
    first, last = (row for row in inputs.accounting if row.job_id == "14")
    last = replace(last, end_unix_s=None, state=state, max_rss_bytes=None, cpu_time_s=None)
    train = next(s for s in inputs.stages if s.name == "train")
    changed = with_rows(inputs, "14", first, last)
    return with_stage(changed, "train", completions=train.completions[:-1])


def test_a_start_that_runs_counts_up_to_when_the_records_were_read(requeued):
    stopped, last = (row for row in requeued.accounting if row.job_id == "14")
    now = last.start_unix_s + 7200
    report = report_from(replace(unended(requeued), read_unix_s=now))
    train = stage_of(report)
    assert train.status == "running"
    stopped_s = stopped.end_unix_s - stopped.start_unix_s
    assert train.gpu_hours.value == pytest.approx(2 * (7200 + stopped_s) / 3600)
    assert train.longest_s.value == pytest.approx(7200)
    assert (train.gpu_hours.at_least, train.longest_s.at_least) == ("", "")
    assert train.max_rss_bytes.at_least == "1 of 2 starts have not ended in the accounting"
    assert notes_with(report, "train: memory is a lower bound, ")
    assert check(report, "time-request").reason == "the stage is not completed"


def test_a_start_without_a_recorded_end_counts_to_its_last_sign_of_life(requeued):
    ended = numbers_of(requeued)
    train = numbers_of(replace(unended(requeued, state="NODE_FAIL"), read_unix_s=2e9))
    for number, most in ((train.gpu_hours, ended.gpu_hours), (train.longest_s, ended.longest_s)):
        assert number.at_least == "the accounting lacks the end of 1 of 2 starts"
        assert 0.9 * most.value < number.value <= most.value


def test_no_hours_are_guessed_for_a_start_without_record_and_end(requeued):
    lost = with_stage(unended(requeued, state="NODE_FAIL"), "train", **NOT_STARTED)
    train = numbers_of(replace(lost, read_unix_s=2e9))
    assert train.longest_s.at_least == "the accounting lacks the end of 1 of 2 starts"
    assert train.longest_s.value < 3600


# Clocks of nodes.


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
    assert bool(why_end_is_the_rows(begun, completion, row)) is is_set


@pytest.mark.parametrize(("with_accounting", "first_s"), [(True, 3), (False, 35)])
def test_a_run_begins_with_its_first_job_if_the_submitting_clock_is_ahead(
    inputs_of, with_accounting, first_s
):
    """`first_s` is the time from when the run really was created."""
    inputs = inputs_of(with_accounting=with_accounting)
    run = {**inputs.run, "created_unix_s": inputs.run["created_unix_s"] + 600}
    right, report = report_from(inputs), report_from(replace(inputs, run=run))
    lasted, found = seconds_of(right.timeline), seconds_of(report.timeline)
    assert sum(found.values()) == pytest.approx(sum(lasted.values()) - first_s)
    running = [name for name in lasted if name.endswith(" running")]
    assert [found[name] for name in running] == pytest.approx([lasted[name] for name in running])
    assert report.header.created_unix_s == pytest.approx(right.header.created_unix_s + first_s)
    assert notes_with(report, "the clocks disagree: ")
    assert not notes_with(right, "the clocks disagree: ")
