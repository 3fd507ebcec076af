"""Notes on rows reach the terminal and the page, whatever version wrote them."""

from __future__ import annotations

from dataclasses import replace

from slurm_jobs.report.page.report_page import render_html
from tests.slurm_jobs.report.builders import printed


def test_notes_on_rows_are_in_the_report(report_of):
    report = report_of()
    data = replace(report.data[0], row_notes=(("answer_left_out", 12), ("of_a_later_version", 4)))
    for show in (printed, render_html):
        text = show(replace(report, data=(data,)))
        assert "began with an answer, left out" in text
        assert "of_a_later_version" in text
