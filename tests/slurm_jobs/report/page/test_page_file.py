"""The file of a page: it opens offline, and values are no placeholders."""

from __future__ import annotations

from slurm_jobs.report.page.report_page import render_html
from tests.slurm_jobs.report.page.parsed_page import ParsedPage, page

__all__ = ["page"]


def test_the_page_asks_for_nothing_from_outside_and_runs_no_script(page):
    ParsedPage(page)
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_a_dollar_in_a_value_is_not_taken_for_a_placeholder(report_of):
    assert "$style $header" in render_html(report_of(name="$style $header"))
