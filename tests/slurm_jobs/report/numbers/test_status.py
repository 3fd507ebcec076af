from __future__ import annotations

import dataclasses
import shutil
import time

import pytest

from slurm_jobs.report.attempts import Standing, overall_status
from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.run_folder.ledger import append_entry, submitting
from slurm_jobs.run_folder.run_records import RunRecords, StageRecords, StageSummary
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.records import TaskAccounting
from slurm_jobs.status import reconcile


def test_a_submit_killed_before_its_first_intent_is_called_what_status_calls_it(
    fabrication, tmp_path
):
    paths, _ = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    inputs = read_inputs(paths, ())
    empty = {"attempts": (), "completions": (), "timings": ()}
    nothing = dataclasses.replace(
        inputs, intents=(), stages=tuple(dataclasses.replace(s, **empty) for s in inputs.stages)
    )
    report = build_report(nothing, ReportConfig())
    summaries = tuple(
        StageSummary(
            name=s.name, run=s.run, num_slices=s.num_slices, is_array=s.num_slices > 1,
            retries=0, fingerprint="", after=s.after,
        )
        for s in inputs.stages
    )  # fmt: skip
    status = reconcile(
        RunRecords(
            meta=None,
            stages=summaries,
            intents=(),
            records={s.name: StageRecords(attempts={}, endings={}) for s in inputs.stages},
        ),
        Answer(),
    )
    assert {s.name: s.status for s in report.stages} == {
        s.stage.name: s.status for s in status.stages
    }
    assert report.header.status == status.status == "stranded"
    assert "not submitted" in report.header.status_reason


@pytest.fixture
def at_work(fabrication, tmp_path):
    """A training in its second attempt: paths, the other jobs' rows, and that of the first."""
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario(finished=False))
    (first,) = (row for row in rows if row.job_id == "14")
    return paths, [row for row in rows if row is not first], first


def report_on(paths, rows, *, squeue=None, **values):
    """The report by these rows of accounting, and by what squeue has the training as."""
    tasks = {row.job_id: row for row in rows}
    if squeue is not None:
        tasks["14"] = TaskAccounting(job_id="14", state=squeue, source="squeue")
    answer = Answer(tasks=tasks, asked_unix_s=time.time(), **values)
    return build_report(read_inputs(paths, rows, answer), ReportConfig())


def words(report):
    """Of the run, of the training, and of the training's last attempt."""
    (stage,) = (s for s in report.stages if s.name == "train")
    bar = [bar for bar in report.bars if bar.stage == "train"][-1]
    return report.header.status, stage.status, bar.outcome


def second_row(first, state, *, end_unix_s=None):
    start = first.end_unix_s + 70
    return dataclasses.replace(first, state=state, start_unix_s=start, end_unix_s=end_unix_s)


def test_what_squeue_has_running_is_running_before_accounting_knows_of_it(at_work):
    paths, others, _ = at_work
    report = report_on(paths, others, squeue="RUNNING")
    assert words(report) == ("running",) * 3
    assert report.verdict.startswith("Still running after")
    assert report.header.last_unix_s == pytest.approx(time.time(), abs=60)


def test_what_squeue_has_waiting_is_waiting_before_accounting_knows_of_it(at_work):
    paths, others, first = at_work
    report = report_on(paths, [*others, first], squeue="PENDING")
    assert words(report)[:2] == ("waiting", "waiting")


def test_what_still_ends_after_a_cancellation_is_running_whatever_accounting_says(at_work):
    paths, others, first = at_work
    append_entry(paths.ledger_dir, "cancelled", "t14", {})
    gone = second_row(first, "CANCELLED", end_unix_s=first.end_unix_s + 3600)
    rows = [*others, first, gone]
    assert words(report_on(paths, rows, squeue="COMPLETING")) == ("running",) * 3
    assert words(report_on(paths, rows)) == ("cancelled",) * 3


def test_what_squeue_knows_no_longer_does_not_run_because_accounting_lags(at_work):
    paths, others, first = at_work
    living = second_row(first, "RUNNING")
    answer = Answer(
        tasks={row.job_id: row for row in others},
        lagging={"14": "RUNNING"},
        asked_unix_s=time.time(),
    )
    inputs = read_inputs(paths, [*others, first, living], answer)
    assert words(build_report(inputs, ReportConfig())) == ("unknown",) * 3


def test_where_nobody_says_what_lives_it_is_not_known_how_the_run_stands(at_work):
    paths, others, first = at_work
    failed = second_row(first, "FAILED", end_unix_s=first.end_unix_s + 3600)
    rows = [*(row for row in others if row.job_id != "13"), failed]
    for path in paths.completions_dir("consolidate").iterdir():
        path.unlink()
    assert words(report_on(paths, rows, knows_the_living=True))[0] == "failed"
    assert words(report_on(paths, rows, knows_the_living=False))[0] == "unknown"


def test_what_a_command_is_about_to_submit_waits(at_work):
    paths, others, _ = at_work
    for path in sorted(paths.ledger_dir.iterdir())[4:]:  # so far `preprocess` and `consolidate`
        path.unlink()
    for folder in (paths.attempts_dir("train"), paths.completions_dir("train")):
        shutil.rmtree(folder)
    with submitting(paths):
        inputs = read_inputs(paths, others)
    report = build_report(inputs, ReportConfig())
    assert report.header.status == "waiting"
    assert report.header.last_unix_s == inputs.read_unix_s
    later = build_report(read_inputs(paths, others), ReportConfig())
    assert later.header.status == "stranded"


def test_a_word_is_not_given_as_its_own_reason():
    standing = Standing(status="cancelled", reason="cancelled", counts={}, is_open=False)
    assert overall_status([("train", standing)]) == ("cancelled", "train cancelled")
