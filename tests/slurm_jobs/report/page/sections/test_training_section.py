"""A training on its page: the slow rank is seen among many, and one attempt is no plural."""

from __future__ import annotations

import re

from slurm_jobs.report.page.report_page import render_html


def test_the_slow_rank_is_drawn_among_many(report_of):
    page = render_html(report_of(num_ranks=40, slow_rank_forward_s=0.3, stopped_at=None))
    ranks = page.partition("<h3>Ranks, slowest first</h3>")[2]
    assert re.search(r">(rank \d+)<", ranks)[1] == "rank 39"
    assert "waiting for other ranks" in page


def test_one_attempt_is_no_plural(report_of):
    page = render_html(report_of(stopped_at=None))
    assert "400 in 1 attempt, on 2 ranks<" in page
    assert not re.search(r"\b1 (attempts|ranks|steps)\b", page)
