"""Attempts on a run's page: a row for each, with its reason."""

from __future__ import annotations

import re
from dataclasses import replace

from slurm_jobs.report.page.report_page import render_html


def test_the_page_has_a_row_for_each_attempt_with_its_reason(report_of) -> None:
    page = render_html(report_of())
    section = page[page.index('id="attempts"') :]
    section = section[: section.index("</section>")]
    assert len(re.findall("<tr>", section)) == 2 + 4  # two tables with a header each
    assert "Slurm gave its nodes to a job of higher priority; it stopped in time" in section
    assert 'id="attempts"' not in render_html(replace(report_of(), attempts=()))
