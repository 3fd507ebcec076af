"""Labels at the axes of charts are not broken."""

from __future__ import annotations

import re

from tests.slurm_jobs.report.page.parsed_page import page

__all__ = ["page"]


def test_no_axis_label_is_broken(page):
    charts = re.findall(r'<div class="chart"[^>]*>', page)
    assert charts
    assert all("white-space:nowrap" in chart and "max-content" in chart for chart in charts)
