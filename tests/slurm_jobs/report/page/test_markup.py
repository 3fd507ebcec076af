"""All text of a page is escaped and visible, and every cell names its column."""

from __future__ import annotations

import re

from slurm_jobs.base.texts.control_characters import STEERING
from slurm_jobs.report.page.markup import join, prose
from slurm_jobs.report.page.report_page import render_html
from tests.slurm_jobs.report.page.parsed_page import ParsedPage, page, style

__all__ = ["page", "style"]

EVIL = "<script>alert(1)</script>"


def test_every_value_is_escaped(report_of):
    page = render_html(report_of(name=EVIL, rejects={EVIL: 3, '" onload="x': 1}))
    ParsedPage(page)
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3


def test_no_value_hides_a_part_of_itself_or_turns_the_writing_round(report_of):
    page = render_html(report_of(name="a\u202eb\u200bc\x1bd", rejects={"\u2066e": 1}))
    for code in ("\\u202e", "\\u200b", "\\x1b", "\\u2066"):
        assert code in page
    assert not STEERING.search(page)


def test_what_is_typed_is_code_and_a_backtick_alone_is_a_backtick():
    assert join(prose("see `a <b>`, then")) == "see <code>a &lt;b&gt;</code>, then"
    assert join(prose("5` of 6")) == "5` of 6"


def test_every_cell_names_its_column_for_screens_too_narrow_for_a_table(page, style):
    cells = re.findall(r"<td[^>]*>", page)
    assert cells
    assert all("data-label=" in cell for cell in cells)
    assert "content: attr(data-label)" in style
