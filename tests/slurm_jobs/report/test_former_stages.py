"""What a resume took out of the spec: its time is accounted for, and it decides nothing."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from slurm_jobs.report.html import render_html
from slurm_jobs.report.inputs import parents_first, read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.report.report_model import report_to_json
from slurm_jobs.report.terminal import print_report
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.files import read_json, write_json_atomic


def write_plan(paths, number, stages):
    values = [
        {
            "name": name,
            "run": stage["run"],
            "after": stage["after"],
            "is_array": stage["array"] is not None,
            "num_slices": stage["array"]["num_slices"] if stage["array"] else 1,
        }
        for name, stage in stages.items()
    ]
    paths.plans_dir.mkdir(exist_ok=True)
    write_json_atomic(paths.plan(number), {"stages": values})


@pytest.fixture
def fabricated(fabrication, tmp_path):
    """A run of which a resume removed `preprocess`, after one of its tasks had failed."""
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    spec = read_json(paths.resolved_spec)
    write_plan(paths, 1, spec["stages"])
    del spec["stages"]["preprocess"]
    spec["stages"]["consolidate"]["after"] = {}
    write_plan(paths, 2, spec["stages"])
    write_json_atomic(paths.resolved_spec, spec)
    for record in paths.completions_dir("preprocess").glob("s00001.a0002.*"):
        record.unlink()
    rows = [
        dataclasses.replace(row, state="TIMEOUT") if row.job_id == "12_1" else row for row in rows
    ]
    return paths, rows


def seconds_of(report):
    return {share.name: share.seconds for share in report.timeline}


def test_the_time_of_a_removed_stage_stays_accounted_for(fabricated, report_of):
    paths, rows = fabricated
    report = build_report(read_inputs(paths, rows), ReportConfig())
    before = seconds_of(report_of())
    for name in ("preprocess running", "queue wait", "job start, end, pauses", "unexplained"):
        assert seconds_of(report).get(name) == before.get(name)
    removed = next(s for s in report.stages if s.name == "preprocess")
    assert (removed.is_former, removed.num_tasks, removed.num_attempts) == (True, 4, 5)
    assert removed.cpu_hours.value > 1.0


def test_a_removed_stage_that_failed_does_not_fail_the_run(fabricated):
    paths, rows = fabricated
    report = build_report(read_inputs(paths, rows), ReportConfig())
    removed = next(s for s in report.stages if s.name == "preprocess")
    assert (removed.status, report.header.status) == ("failed", "completed")
    assert report.data == ()
    assert not any(":preprocess" in check.rule_id for check in report.checks)


def test_a_removed_stage_is_said_to_be_none_of_the_spec_in_every_form(fabricated):
    paths, rows = fabricated
    report = build_report(read_inputs(paths, rows), ReportConfig())
    console = Console(file=io.StringIO(), width=160)
    print_report(report, console)
    label = "preprocess (former)"
    assert label in render_html(report)
    assert label in console.file.getvalue()
    assert report_to_json(report)["stages"][1]["is_former"]
    assert any(
        note.startswith("preprocess (former) is no longer in the spec") for note in report.notes
    )


def test_a_job_of_a_stage_that_no_readable_plan_names_stops_no_report(fabricated):
    paths, rows = fabricated
    paths.plan(1).write_text("{")
    report = build_report(read_inputs(paths, rows), ReportConfig())
    assert "preprocess" not in {stage.name for stage in report.stages}
    assert any("0001.json: not read as a plan" in note for note in report.notes)
    assert report.header.status == "completed"


def test_a_parent_that_was_removed_is_not_waited_for():
    assert parents_first({"b": {"after": {"a": "afterok", "gone": "afterok"}}, "a": {}}) == [
        "a",
        "b",
    ]


@pytest.mark.parametrize("width", range(70, 100, 3))
def test_the_longer_name_of_a_removed_stage_cuts_no_number_off(fabricated, width):
    paths, rows = fabricated
    console = Console(file=io.StringIO(), width=width)
    print_report(build_report(read_inputs(paths, rows), ReportConfig()), console)
    assert "…" not in console.file.getvalue()
