"""Time from submit to end: every second once, with a name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.run_folder.orders import name_of_job
from tests.slurm_jobs.report.builders import (
    NOT_STARTED,
    notes_with,
    report_from,
    row_of,
    seconds_of,
    with_rows,
    with_stage,
)


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
