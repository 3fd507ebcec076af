"""Attempts on the time axis: each outcome has its colour, in arrays of any size."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest

from slurm_jobs.base.shipped_files import shipped_path
from slurm_jobs.report.page.bar_pieces import KINDS, pieces
from slurm_jobs.report.page.gantt import timeline_section
from slurm_jobs.report.page.report_page import render_html
from tests.slurm_jobs.report.fabricate_array import STARTUP_S, STATUS_OF, mixed_ends, report_on_ends

SIZES = (3, 40, 500, 10_000)


@pytest.fixture(scope="module", params=SIZES)
def ends(request):
    return mixed_ends(request.param)


@pytest.fixture(scope="module")
def report(ends, tmp_path_factory):
    return report_on_ends(tmp_path_factory.mktemp("array"), ends, queue_s=30.0)


def colours_in(html: str) -> set[str]:
    """Kinds that are drawn: boxes of the time axis, areas, and cells of the strip."""
    drawn = re.findall(r'class="(?:box )?o-(\w+)"', html)
    return set(drawn)


def test_every_outcome_has_its_colour_and_its_name_in_the_legend(report, ends):
    section = str(timeline_section(report))
    axis, _, rest = section.partition('class="moments"')
    outcomes = {STATUS_OF[end] for end in ends} - {"waiting"}
    assert colours_in(axis) == outcomes | {"startup", "queued"}
    legend = rest.partition("</ul>")[0]
    assert set(re.findall(r'class="key o-(\w+)"', legend)) == colours_in(axis)


def test_the_strip_has_every_status_with_its_colour_and_count(report, ends):
    strip = str(timeline_section(report)).partition('class="slices"')[2]
    counts = Counter(STATUS_OF[end] for end in ends)
    assert colours_in(strip) == set(counts)
    shown = re.findall(r'class="key o-(\w+)"></span><span class="name">([\d,]+) \1', strip)
    assert {status: int(num.replace(",", "")) for status, num in shown} == counts


def test_a_page_of_any_array_is_small_and_takes_little_time(report):
    began_s = time.process_time()
    page = render_html(report)
    assert time.process_time() - began_s < 5
    assert len(page.encode()) < 200_000


def test_one_failure_of_hundreds_is_drawn(tmp_path):
    report = report_on_ends(tmp_path, ["completed"] * 400 + ["failed"] + ["completed"] * 400)
    section = str(timeline_section(report))
    assert section.count('class="o-failed"') == 2  # on the time axis, and in the strip
    assert "1 slice: 400" in section


def test_the_start_up_of_a_job_is_no_wait_in_the_queue(tmp_path):
    report = report_on_ends(tmp_path, ["completed"], queue_s=0.0)
    (bar,) = report.bars
    parts = [(part.kind, part.end_unix_s - part.start_unix_s) for part in pieces(bar)]
    assert parts[0] == ("startup", pytest.approx(STARTUP_S))
    assert [kind for kind, _ in parts] == ["startup", "completed"]
    assert "waits in the queue" not in str(timeline_section(report))


def test_a_wait_in_the_queue_ends_with_the_start_of_the_job(tmp_path):
    (bar,) = report_on_ends(tmp_path, ["completed"], queue_s=30.0).bars
    parts = [(part.kind, part.end_unix_s - part.start_unix_s) for part in pieces(bar)]
    assert parts[:2] == [("queued", pytest.approx(30)), ("startup", pytest.approx(STARTUP_S))]


def test_every_kind_of_bar_has_a_colour_in_html_and_in_svg():
    style = shipped_path("templates", "report", "page.css").read_text()
    rules = re.findall(r"((?:\.o-\w+(?:, )?)+) \{ background: (\S+); fill: (\S+); \}", style)
    assert all(background == fill for _, background, fill in rules)
    styled = {name for names, _, _ in rules for name in re.findall(r"o-(\w+)", names)}
    assert styled == set(KINDS)
