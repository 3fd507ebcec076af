"""Stages that can never start have one reason, on the page and in the terminal."""

from __future__ import annotations

from dataclasses import replace

from slurm_jobs.report.page.report_page import render_html
from tests.slurm_jobs.report.builders import printed


def test_terminal_and_page_say_why_stages_can_never_start_each_reason_once(report_of):
    report = report_of()
    first, second, *others = report.stages
    stranded = {"status": "stranded", "status_reason": "not needed: `work` completed"}
    changed = [replace(stage, **stranded) for stage in (first, second)]
    report = replace(report, stages=(*changed, *others))
    line = f"{first.name}, {second.name} stranded: not needed: `work` completed"
    assert f"  {line}\n" in printed(report)
    assert f"<li>{line}</li>" in render_html(report)
