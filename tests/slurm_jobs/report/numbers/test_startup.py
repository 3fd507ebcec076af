"""The time of a training task around its steps."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.report.timeline import attempt_budget
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.timings import PROCESS_EXIT_SPAN, STEP_FIELDS, spans_path, steps_path


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
    found = {share.name: share.seconds for share in attempt_budget([attempt], {1: bar}, [lead])}
    assert found["steps"] == pytest.approx(100)
    assert found["unexplained"] == pytest.approx(15)
    assert sum(found.values()) == pytest.approx(115)


def test_the_time_that_a_profile_takes_has_a_name(fabrication, tmp_path):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario(stopped_at=None))
    folder = paths.timing_dir("train", 0, 1)
    for rank in range(2):
        path = steps_path(folder, rank)
        header, _, body = path.read_bytes().partition(b"\n")
        steps = np.frombuffer(body, [(name, "<" + code) for name, code in STEP_FIELDS]).copy()
        begun = float(steps["start_unix_s"][30])
        steps["start_unix_s"][30:] += 8.0
        path.write_bytes(header + b"\n" + steps.tobytes())
        span = {"name": "profile_write", "start_unix_s": begun, "duration_s": 8.0}
        spans = spans_path(folder, rank)
        spans.write_text(spans.read_text() + json.dumps(span) + "\n")
    report = build_report(read_inputs(paths, rows), ReportConfig()).training[0]
    shares = {s.name: s.seconds for s in report.budget}
    assert shares["profiles begun and written"] == pytest.approx(8.0, rel=1e-3)
    assert shares.get("between steps", 0.0) < 1.0


def test_a_damaged_file_of_rank_0_leaves_no_step_unexplained(fabrication, tmp_path):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario(stopped_at=None))
    before = build_report(read_inputs(paths, rows), ReportConfig()).training[0].budget
    path = steps_path(paths.timing_dir("train", 0, 1), 0)
    header, _, body = path.read_bytes().partition(b"\n")
    size = len(body) // 400
    path.write_bytes(header + b"\n" + body[: 30 * size] + bytes(len(body) - 30 * size))
    after = build_report(read_inputs(paths, rows), ReportConfig()).training[0].budget
    for was, now in zip(before, after, strict=True):
        assert (now.name, now.seconds) == (was.name, pytest.approx(was.seconds, abs=0.1))
