"""The time of a training task around its steps."""

from __future__ import annotations

import json

import pytest

from slurm_jobs.common.stage_config.report import ReportConfig
from slurm_jobs.common.timings import PROCESS_EXIT_SPAN, spans_path
from slurm_jobs.report.inputs.reading import read_inputs
from slurm_jobs.report.numbers.build import build_report


def test_the_end_of_an_attempt_is_explained_by_the_exit_of_its_process(fabrication, tmp_path):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario(stopped_at=None))
    before = build_report(read_inputs(paths, rows), ReportConfig()).training[0].budget
    path = spans_path(paths.timing_dir("train", 0, 1), 0)
    export = json.loads(path.read_text().splitlines()[-1])
    assert export["name"] == "export"
    returned = export["start_unix_s"] + export["duration_s"]
    exit_ = {"name": PROCESS_EXIT_SPAN, "start_unix_s": returned, "duration_s": 3.0}
    path.write_text(path.read_text() + json.dumps(exit_) + "\n")
    after = build_report(read_inputs(paths, rows), ReportConfig()).training[0].budget
    shares = {s.name: s.seconds for s in after}
    assert shares["process exit"] == pytest.approx(3.0)
    assert shares["other ranks and supervisor"] == pytest.approx(0.5)  # to 12 s after the loop
    assert shares["unexplained"] == pytest.approx(before[-1].seconds - 3.5)
