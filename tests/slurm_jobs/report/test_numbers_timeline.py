from __future__ import annotations

import dataclasses

import pytest

from slurm_jobs.common.stage_config.report import ReportConfig
from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report


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
