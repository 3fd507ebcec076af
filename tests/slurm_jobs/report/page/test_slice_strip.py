"""Slices by status: what needs attention is named, and a complete array needs no strip."""

from __future__ import annotations

import re
from dataclasses import replace

from slurm_jobs.report.page.slice_strip import slices_by_status
from slurm_jobs.report.values.report_model import RunReport
from tests.slurm_jobs.report.builders import stage_of
from tests.slurm_jobs.report.fabricate_array import End, report_on_ends


def strip_of(folder, *ends: End) -> str:
    return str(slices_by_status(report_on_ends(folder, ends)))


def with_slices(report: RunReport, slices: dict[str, str], num: int) -> RunReport:
    stage = stage_of(report, "embed")
    return replace(report, stages=(replace(stage, slices=slices, num_tasks=num),))


def test_a_complete_array_and_a_single_job_have_no_strip(tmp_path):
    assert slices_by_status(report_on_ends(tmp_path / "a", ["completed", "retried"])) is None
    assert slices_by_status(report_on_ends(tmp_path / "b", ["failed"])) is None


def test_slices_that_need_attention_are_named_and_the_others_counted(tmp_path):
    strip = strip_of(tmp_path, "completed", "failed", "completed", "scancelled", "failed")
    counts = re.findall(r'class="name">([^<]*)<', strip)
    assert counts == ["2 completed", "1 cancelled: 3", "2 failed"]
    assert "failed: ValueError: row 17 has no caption (2 slices: 1, 4)" in strip
    assert "Each column" not in strip


def test_of_many_slices_the_first_ranges_are_named(tmp_path):
    report = report_on_ends(tmp_path, ["completed", "failed"])
    cancelled = ",".join(str(index) for index in range(1, 100, 2))
    completed = ",".join(str(index) for index in range(0, 100, 2))
    strip = str(
        slices_by_status(with_slices(report, {"cancelled": cancelled, "completed": completed}, 100))
    )
    assert "50 cancelled: 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and 38 more" in strip


def test_every_status_of_a_column_is_visible_and_in_its_title(tmp_path):
    report = report_on_ends(tmp_path, ["completed", "failed"])
    slices = {"completed": "0-9,11-1999", "stranded": "10"}
    strip = str(slices_by_status(with_slices(report, slices, 2000)))
    assert "<title>slices 10-19: 9 completed, 1 stranded</title>" in strip
    (height,) = re.findall(r'v([\d.]+)h-1z" class="o-stranded"', strip)
    assert float(height) > 24 / 6
    assert "Each column stands for about 10 slices" in strip


def test_a_stage_that_the_spec_no_longer_has_has_no_strip(tmp_path):
    report = report_on_ends(tmp_path, ["completed", "failed"])
    former = replace(stage_of(report, "embed"), is_former=True)
    assert slices_by_status(replace(report, stages=(former,))) is None
