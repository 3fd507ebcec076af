"""Parts of the terminal's report: they fit any width, and equal those of the page."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from slurm_jobs.base import units
from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.report.page.report_page import render_html
from tests.slurm_jobs.report.builders import printed


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_number_is_cut_however_narrow_the_terminal(report_of, width):
    report = report_of(slow_rank_forward_s=0.2, num_ranks=4)
    text = printed(report, width=width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for share in (*report.training[0].phases, *report.timeline):
        if share.share >= 0.001:
            assert units.seconds(share.seconds) in text
    for stage in report.stages:
        assert units.quantity(stage.running_s) in text


def test_terminal_and_page_show_the_same_parts_of_the_time(report_of):
    """Those of which there is something to see, be it a queue or what is unexplained."""
    parts = {"first": 0.9, "queue wait": 0.0995, "idle": 0.0005, "short": 0.0004, "unexplained": 0}
    shares = tuple(
        TimeShare(name=name, kind="queue", seconds=100 * share, share=share)
        for name, share in parts.items()
    )
    report = replace(report_of(), timeline=shares)
    rest = printed(report).partition("From submit to end\n")[2]
    in_terminal = re.findall(
        r"^ +([a-z]+(?: [a-z]+)*) .* %", rest.partition(" GPU h")[0], re.MULTILINE
    )
    (legend,) = re.findall(
        r'<ul class="legend" aria-label="from submit to end">.*?</ul>',
        render_html(report),
        re.DOTALL,
    )
    assert (
        in_terminal == re.findall(r'class="name">(.*?)<', legend) == ["first", "queue wait", "idle"]
    )
