from __future__ import annotations

import dataclasses

from slurm_jobs.common.stage_config.report import ReportConfig
from slurm_jobs.reconcile import reconcile
from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.run.model import RunRecords, StageRecords, StageSummary
from slurm_jobs.schedulers.protocol import Answer


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
