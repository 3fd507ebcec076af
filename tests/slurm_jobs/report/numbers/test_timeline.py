"""Time from submit to end, and of a training's attempts: every second once, with a name."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.formats.timings.step_records import (
    PROCESS_EXIT_SPAN,
    STEP_FIELDS,
    spans_path,
    steps_path,
)
from slurm_jobs.report.numbers.trainings.training_time import attempt_budget
from slurm_jobs.report.steps.intervals import budget, max_overlap, merge, subtract, total_s
from slurm_jobs.run_folder.orders import name_of_job
from tests.slurm_jobs.report.builders import (
    NOT_STARTED,
    add_span,
    change_steps,
    report_from,
    report_on,
    row_of,
    seconds_of,
    stage_of,
    with_rows,
    with_stage,
)

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(
        lambda pair: (float(min(pair)), float(max(pair)))
    ),
    max_size=8,
)


def seconds_covered(parts):
    return {s for start, end in parts for s in range(int(start), int(end))}


@given(intervals, intervals)
def test_subtract_keeps_exactly_the_seconds_of_the_whole_that_no_part_has(whole, parts):
    left = subtract(merge(whole), merge(parts))
    assert seconds_covered(left) == seconds_covered(whole) - seconds_covered(parts)
    assert total_s(left) == len(seconds_covered(left))


@given(intervals, intervals)
def test_a_budget_adds_up_to_the_whole_and_earlier_claims_win(first, second):
    shares = budget(0.0, 50.0, [("a", "a", first), ("b", "b", second)], ("rest", "rest"))
    assert sum(s.share for s in shares) == pytest.approx(1.0)
    assert seconds_of(shares).get("a", 0.0) == len(seconds_covered(first) & set(range(50)))


def test_overlap_counts_what_runs_at_once_and_not_what_touches():
    assert max_overlap([(0, 2), (1, 3), (2, 4)]) == 2
    assert max_overlap([]) == 0


def test_an_empty_span_has_no_budget():
    assert budget(5.0, 5.0, [], ("rest", "rest")) == ()


# From submit to end.


@pytest.fixture
def inputs(inputs_of):
    return inputs_of()


def test_with_full_accounting_nothing_is_unexplained(report_of):
    report = report_of()
    found = seconds_of(report.timeline)
    wall_s = report.header.last_unix_s - report.header.created_unix_s
    assert sum(found.values()) == pytest.approx(wall_s)
    assert sum(share.share for share in report.timeline) == pytest.approx(1.0)
    assert found["unexplained"] == pytest.approx(0.0, abs=0.01)
    assert found["requeue wait"] == pytest.approx(70.0)
    assert found["consolidate running"] == pytest.approx(44.0)
    assert "report running" not in found  # the one that is being made


def test_a_start_that_accounting_lacks_is_named(inputs):
    report = report_from(with_rows(inputs, "13"))
    assert "lacks 1 of 8 starts (jobs 13)" in report.timeline_note


def test_the_last_row_alone_leaves_the_first_wait_of_a_requeue_unexplained(inputs):
    last_rows = {row.job_id: row for row in inputs.accounting}
    report = report_from(replace(inputs, accounting=tuple(last_rows.values())))
    assert "nothing submitted" not in seconds_of(report.timeline)
    assert "lacks 2 of 8 starts (jobs 12_1, 14)" in report.timeline_note


def test_what_a_job_spends_before_and_after_its_attempt_is_the_jobs_own(inputs):
    row = row_of(inputs, "13")
    times = {"start_unix_s": row.start_unix_s - 4, "end_unix_s": row.end_unix_s + 2}
    found = seconds_of(report_from(with_rows(inputs, "13", **times)).timeline)
    assert found["job start, end, pauses"] == pytest.approx(6.0)
    assert found["consolidate running"] == pytest.approx(44.0)


def test_the_time_from_a_failure_to_its_resume_is_no_wait_for_a_parent(inputs_of):
    """`consolidate` failed; `train` was stranded until a resume, a day later, cancelled it."""
    inputs = inputs_of(stopped_at=None)
    parent, child = row_of(inputs, "13"), row_of(inputs, "14")
    later = parent.end_unix_s + 86_400
    again = replace(
        parent,
        job_id="23",
        submit_unix_s=later + 1,
        eligible_unix_s=later + 1,
        start_unix_s=later + 5,
        end_unix_s=later + 50,
    )
    stranded = {"state": "CANCELLED", "start_unix_s": None}
    stranded |= {"eligible_unix_s": later, "end_unix_s": later}
    (first,) = next(s for s in inputs.stages if s.name == "consolidate").attempts
    second = replace(first, attempt=2, job_id="23", started_unix_s=later + 6)
    changed = with_stage(inputs, "train", **NOT_STARTED)
    changed = with_stage(changed, "consolidate", attempts=(first, second))
    changed = with_rows(changed, "14", replace(child, **stranded))
    changed = with_rows(changed, "13", replace(parent, state="FAILED"), again)
    found = seconds_of(report_from(changed).timeline)
    assert found.get("waiting for a parent stage", 0.0) < 60
    assert found["gaps between jobs"] == pytest.approx(86_401, abs=5)


@pytest.mark.parametrize("has_row", [True, False])
def test_an_earlier_report_is_counted_as_its_stages_own_time(inputs_of, has_row):
    """`train` ended, a report was made of it in 100 s, and a day later `train` ran again."""
    inputs = inputs_of(stopped_at=None)
    stages = {stage.name: stage for stage in inputs.stages}
    row = row_of(inputs, "14")
    (train,), (ended,) = stages["train"].attempts, stages["train"].completions
    begun = stages["report"].attempts[0].started_unix_s
    made = replace(
        ended,
        stage="report",
        job_id="15",
        token=stages["report"].attempts[0].token,
        started_unix_s=begun,
        ended_unix_s=begun + 100,
        result={},
    )
    again = made.ended_unix_s + 86_400
    second = replace(train, attempt=2, job_id="24", started_unix_s=again + 5)
    second_end = replace(
        ended, attempt=2, job_id="24", started_unix_s=again + 5, ended_unix_s=again + 50
    )
    of_report = replace(
        row,
        job_id="15",
        job_name=name_of_job(inputs.run["name"], "report", made.token),
        eligible_unix_s=begun - 4,
        start_unix_s=begun,
        end_unix_s=begun + 100,
    )
    of_second = replace(
        row,
        job_id="24",
        submit_unix_s=again,
        eligible_unix_s=again,
        start_unix_s=again + 5,
        end_unix_s=again + 50,
    )
    changed = with_stage(inputs, "report", completions=(made,))
    changed = with_stage(
        changed, "train", attempts=(train, second), completions=(ended, second_end)
    )
    changed = with_rows(changed, "15", *([of_report] if has_row else []))
    report = report_from(with_rows(changed, "24", of_second))
    found = seconds_of(report.timeline)
    assert found["report running"] == pytest.approx(100)
    if has_row:
        assert found["gaps between jobs"] == pytest.approx(86_400, abs=10)
    else:
        assert "(jobs 15): their queue wait counts as unexplained" in report.timeline_note


def test_a_stage_ran_for_as_long_as_one_of_its_attempts_did(report_of):
    report = report_of()
    first, second = (bar for bar in report.bars if bar.stage == "train")
    assert second.start_unix_s - first.end_unix_s > 60  # it waited for its requeue
    worked_s = sum(bar.end_unix_s - bar.start_unix_s for bar in (first, second))
    assert stage_of(report).running_s.value == pytest.approx(worked_s)
    slices = [bar for bar in report.bars if bar.stage == "preprocess"]  # side by side
    span_s = max(b.end_unix_s for b in slices) - min(b.start_unix_s for b in slices)
    assert stage_of(report, "preprocess").running_s.value == pytest.approx(span_s)


def test_waits_and_task_times_are_those_of_the_records(report_of):
    preprocess, train = (stage_of(report_of(), name) for name in ("preprocess", "train"))
    assert preprocess.dependency_wait_median_s.value == pytest.approx(1.0)
    assert preprocess.queue_wait_max_s.value == pytest.approx(37.0)
    assert preprocess.task_time.min_s == pytest.approx(380.0)
    assert preprocess.task_time.max_s == pytest.approx(410.0)
    assert preprocess.task_time.slowest.startswith("slice 3 ")
    assert preprocess.cpu_efficiency.value == pytest.approx(0.62)
    assert preprocess.max_running == 4
    # The two rows of a requeued job belong to its two attempts.
    assert train.queue_wait_max_s.value == pytest.approx(240.0)
    assert train.queue_wait_median_s.value == pytest.approx((240 + 68) / 2)


# Attempts of a training.


@pytest.fixture
def changed_budget(run_of):
    """Return the budget of a training before and after a change to its folder."""

    def make(change):
        paths, rows = run_of(stopped_at=None)
        before = report_on(paths, rows).training[0].budget
        change(paths.timing_dir("train", 0, 1))
        return before, report_on(paths, rows).training[0].budget

    return make


def test_the_end_of_an_attempt_is_explained_by_the_exit_of_its_process(changed_budget):
    def add_exit(folder):
        export = json.loads(spans_path(folder, 0).read_text().splitlines()[-1])
        assert export["name"] == "export"
        add_span(folder, 0, PROCESS_EXIT_SPAN, export["start_unix_s"] + export["duration_s"], 3.0)

    before, after = map(seconds_of, changed_budget(add_exit))
    assert after["process exit"] == pytest.approx(3.0)
    assert after["other ranks and supervisor"] == pytest.approx(0.5)  # to 12 s after the loop
    assert after["unexplained"] == pytest.approx(before["unexplained"] - 3.5)


def test_the_time_that_a_profile_takes_has_a_name(changed_budget):
    def profile(folder):
        begun = []

        def delay(steps):
            begun.append(float(steps["start_unix_s"][30]))
            steps["start_unix_s"][30:] += 8.0

        change_steps(folder, delay)
        for rank, start in enumerate(begun):
            add_span(folder, rank, "profile_write", start, 8.0)

    _, after = map(seconds_of, changed_budget(profile))
    assert after["profiles begun and written"] == pytest.approx(8.0, rel=1e-3)
    assert after.get("between steps", 0.0) < 1.0


def test_a_damaged_file_of_rank_0_leaves_no_step_unexplained(changed_budget):
    def damage(folder):
        header, _, body = steps_path(folder, 0).read_bytes().partition(b"\n")
        whole = 30 * len(body) // 400
        content = header + b"\n" + body[:whole] + bytes(len(body) - whole)
        steps_path(folder, 0).write_bytes(content)

    for was, now in zip(*changed_budget(damage), strict=True):
        assert (now.name, now.seconds) == (was.name, pytest.approx(was.seconds, abs=0.1))


@pytest.mark.parametrize("set_back_s", [0.0, 30.0, 3600.0])
def test_a_clock_that_is_set_back_counts_no_second_twice(set_back_s: float) -> None:
    records = np.zeros(100, [(name, code) for name, code in STEP_FIELDS])
    records["step"], records["step_s"] = np.arange(100), 1.0
    records["start_unix_s"] = 1e9 + np.arange(100) - np.where(np.arange(100) < 50, 0, set_back_s)
    attempt: Any = SimpleNamespace(
        attempt=1,
        records=[records],
        longest=0,
        ranks=[],
        kept=lambda _: records,
        repeated=lambda _: records[:0],
        abandoned=lambda _: records[:0],
    )
    bar: Any = SimpleNamespace(start_unix_s=1e9 - 5, end_unix_s=1e9 + 110)
    lead: Any = SimpleNamespace(attempt=1, rank=0, spans=[], steps=None)
    found = seconds_of(attempt_budget([attempt], {1: bar}, [lead]))
    assert found["steps"] == pytest.approx(100)
    assert found["unexplained"] == pytest.approx(15)
    assert sum(found.values()) == pytest.approx(115)
