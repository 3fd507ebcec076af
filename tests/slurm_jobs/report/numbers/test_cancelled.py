"""An attempt that `scancel` ended is cancelled; one that failed before is a failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.report.stage import make_report
from tests.slurm_jobs.report.builders import edited, stage_of
from tests.slurm_jobs.report.fabricate_array import fabricate_array, report_on_ends


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
