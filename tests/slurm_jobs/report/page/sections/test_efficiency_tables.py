"""Tables of efficiency show the same on the page as in the terminal."""

from __future__ import annotations

import re

from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.text.efficiency_text import lines_below, use_rows
from tests.slurm_jobs.report.builders import printed


def test_terminal_and_page_show_the_same_uses_and_what_was_lost(report_of):
    report = report_of()
    text, page = printed(report, 100), render_html(report)
    for row in use_rows(report.efficiency):
        for cell in row:
            assert cell in text
            assert f">{cell}<" in page
    (lost,) = (line for line in lines_below(report.efficiency) if line.startswith("failed and"))
    assert re.search(r"GPU h \(.* CPU h \(", lost)
    assert lost in text
    assert lost in page
