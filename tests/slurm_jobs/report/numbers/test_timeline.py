from __future__ import annotations

import dataclasses

import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig


def test_the_time_from_a_failure_to_its_resume_is_nobodys_wait_for_a_parent(fabrication, tmp_path):
    """`consolidate` failed; `train` lay stranded until a resume, a day later, cancelled it."""
    scenario = fabrication.Scenario(stopped_at=None)
    paths, rows = fabrication.fabricate(tmp_path / "run", scenario)
    inputs = read_inputs(paths, rows)
    parent = next(row for row in rows if row.job_id == "13")
    child = next(row for row in rows if row.job_id == "14")
    resumed = parent.end_unix_s + 86_400
    stranded = dataclasses.replace(
        child, state="CANCELLED", eligible_unix_s=resumed, start_unix_s=None, end_unix_s=resumed
    )
    others = [row for row in rows if row.job_id not in {"13", "14"}]
    again = [
        dataclasses.replace(
            parent,
            job_id="23",
            submit_unix_s=resumed + 1,
            eligible_unix_s=resumed + 1,
            start_unix_s=resumed + 5,
            end_unix_s=resumed + 50,
        )
    ]
    failed = dataclasses.replace(parent, state="FAILED")
    stages = tuple(
        dataclasses.replace(s, attempts=(), completions=(), timings=()) if s.name == "train" else s
        for s in inputs.stages
    )
    consolidate = next(s for s in inputs.stages if s.name == "consolidate")
    second = dataclasses.replace(
        consolidate.attempts[0], attempt=2, job_id="23", started_unix_s=resumed + 6
    )
    stages = tuple(
        dataclasses.replace(s, attempts=(*s.attempts, second)) if s.name == "consolidate" else s
        for s in stages
    )
    report = build_report(
        dataclasses.replace(inputs, stages=stages, accounting=(*others, failed, stranded, *again)),
        ReportConfig(),
    )
    seconds = {s.name: s.seconds for s in report.timeline}
    assert seconds.get("waiting for a parent stage", 0.0) < 60
    assert seconds["nothing could start"] == pytest.approx(86_401, abs=5)


@pytest.fixture
def resumed(fabrication, tmp_path):
    """`train` ended, a report was made of it in 100 s, and a day later `train` ran again."""
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario(stopped_at=None))
    inputs = read_inputs(paths, rows)
    stages = {stage.name: stage for stage in inputs.stages}
    first = stages["report"].attempts[0]
    made = dataclasses.replace(
        stages["train"].completions[0],
        stage="report",
        job_id=first.job_id,
        started_unix_s=first.started_unix_s,
        ended_unix_s=first.started_unix_s + 100,
        result={},
    )
    stages["report"] = dataclasses.replace(stages["report"], completions=(made,))
    again_s = made.ended_unix_s + 86_400
    train, ended = stages["train"].attempts[0], stages["train"].completions[0]
    second = dataclasses.replace(train, attempt=2, job_id="24", started_unix_s=again_s + 5)
    ended = dataclasses.replace(
        ended,
        attempt=2,
        job_id="24",
        started_unix_s=second.started_unix_s,
        ended_unix_s=again_s + 50,
    )
    stages["train"] = dataclasses.replace(
        stages["train"],
        attempts=(train, second),
        completions=(*stages["train"].completions, ended),
    )
    parent = next(row for row in rows if row.job_id == "14")
    job = dataclasses.replace(
        parent,
        job_id="24",
        submit_unix_s=again_s,
        eligible_unix_s=again_s,
        start_unix_s=again_s + 5,
        end_unix_s=again_s + 50,
    )
    accounting = (*(row for row in rows if row.job_id != "15"), job)
    return dataclasses.replace(inputs, stages=tuple(stages.values()), accounting=accounting), made


@pytest.mark.parametrize("has_row", [True, False])
def test_an_earlier_report_is_counted_as_its_stages_own_time(resumed, has_row):
    inputs, made = resumed
    row = dataclasses.replace(
        next(row for row in inputs.accounting if row.job_id == "14"),
        job_id="15",
        eligible_unix_s=made.started_unix_s - 4,
        start_unix_s=made.started_unix_s,
        end_unix_s=made.ended_unix_s,
    )
    if has_row:
        inputs = dataclasses.replace(inputs, accounting=(*inputs.accounting, row))
    report = build_report(inputs, ReportConfig())
    seconds = {share.name: share.seconds for share in report.timeline}
    assert seconds["report running"] == pytest.approx(100)
    if has_row:
        assert seconds["nothing could start"] == pytest.approx(86_400, abs=10)
    else:
        assert "(jobs 15): their queue wait counts as unexplained" in report.timeline_note


def test_the_report_that_is_being_made_is_no_part_of_the_time(report_of):
    report = report_of(finished=True)
    assert "report running" not in {share.name for share in report.timeline}
