from __future__ import annotations

import re

import pytest

from slurm_jobs.report.html import render_html
from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.markup import join, prose
from slurm_jobs.report.numbers import build_report
from slurm_jobs.report.rank_numbers import PHASE_KINDS
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.expand import shipped_path
from slurm_jobs.shared.redact import STEERING
from slurm_jobs.shared.timings import STEP_PHASES, read_steps
from tests.slurm_jobs.report import fabricate_run
from tests.slurm_jobs.report.parsed_page import parse

EVIL = "<script>alert(1)</script>"


def test_the_page_asks_for_nothing_from_outside_and_runs_no_script(report_of):
    page = render_html(report_of())
    parsed = parse(page)
    assert not parsed.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert parsed.links == []
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_every_value_is_escaped(report_of):
    page = render_html(report_of(name=EVIL, rejects={EVIL: 3, '" onload="x': 1}))
    parse(page)
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


def test_a_dollar_in_a_value_is_not_taken_for_a_placeholder(report_of):
    assert "$style $header" in render_html(report_of(name="$style $header"))


def test_the_sections_come_in_the_order_of_the_terminal(report_of):
    page = render_html(report_of())
    ids = re.findall(r'<section id="([a-z]+)"', page)
    assert ids == [
        "step",
        "findings",
        "timeline",
        "training",
        "data",
        "slurm",
        "provenance",
        "method",
    ]


@pytest.mark.parametrize("finished", [True, False])
def test_a_page_without_accounting_or_end_is_whole(report_of, finished):
    page = render_html(
        report_of(with_accounting=False, finished=finished, num_steps=3, stopped_at=None)
    )
    parse(page)
    assert "no accounting" in page


def test_a_page_stays_small_with_many_tasks_ranks_and_steps(report_of):
    report = report_of(
        task_times_s=tuple(300.0 + i % 17 for i in range(600)),
        num_ranks=64,
        num_steps=2_000,
        stopped_at=None,
    )
    page = render_html(report)
    parse(page)
    assert "preprocess x 600" in page
    assert "48 ranks in between are not drawn" in page
    assert len(page.encode()) < 500_000


def test_the_slow_rank_is_drawn_among_many(report_of):
    page = render_html(report_of(num_ranks=40, slow_rank_forward_s=0.3, stopped_at=None))
    rows = re.findall(r'title="(rank \d+) gpu', page)
    assert rows[0] == "rank 39"
    assert "waiting for other ranks" in page


def test_every_step_phase_has_a_colour_of_its_own_in_both_schemes(report_of):
    style = shipped_path("templates", "report", "page.css").read_text()
    shown = dict(re.findall(r"\.k-(\w+)(?:, \.k-[\w-]+)* \{ background: var\(--([\w-]+)\)", style))
    names = [shown[kind] for kind in PHASE_KINDS]
    for root in re.findall(r":root \{(.*?)\}", style, re.DOTALL):
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", root))
        assert len({colours[name] for name in names}) == len(PHASE_KINDS)


def test_every_cell_names_its_column_for_screens_too_narrow_for_a_table(report_of):
    page = render_html(report_of())
    cells = re.findall(r"<td[^>]*>", page)
    assert cells
    assert all("data-label=" in cell for cell in cells)
    style = shipped_path("templates", "report", "page.css").read_text()
    assert "content: attr(data-label)" in style


def test_names_of_ranks_and_slices_wrap_on_narrow_screens():
    style = shipped_path("templates", "report", "page.css").read_text()
    narrow = style.partition("@media (max-width: 620px)")[2].partition("@media")[0]
    labels = re.search(r"\.row \.label, \.rank \.label \{(.*?)\}", narrow)
    assert labels
    assert "white-space: normal" in labels[1]


def relative_luminance(colour: str) -> float:
    """WCAG 2.1, definition of relative luminance."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted(map(relative_luminance, (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "ground"),
    [
        *((ink, ground) for ink in ("ink", "dim") for ground in ("page", "card")),
        ("ink", "soft"),
        ("accent", "card"),
        ("bad-ink", "bad-bg"),
        ("mid-ink", "mid-bg"),
        ("good-ink", "good-bg"),
        ("note-ink", "note-bg"),
    ],
)
def test_text_has_a_contrast_of_at_least_four_and_a_half(scheme, ink, ground):
    style = shipped_path("templates", "report", "page.css").read_text()
    root = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", root))
    assert contrast(colours[ink], colours[ground]) >= 4.5


def test_one_attempt_is_no_plural(report_of):
    page = render_html(report_of(stopped_at=None))
    assert "400 in 1 attempt, on 2 ranks<" in page
    assert not re.search(r"\b1 (attempts|ranks|steps)\b", page)


def test_no_axis_label_is_broken(report_of):
    charts = re.findall(r'<div class="chart"[^>]*>', render_html(report_of()))
    assert charts
    assert all("white-space:nowrap" in chart and "max-content" in chart for chart in charts)


def test_each_rules_threshold_stands_once_on_the_page_also_where_nothing_was_found(report_of):
    page = render_html(report_of())
    thresholds = page.partition("<h3>Thresholds</h3>")[2]
    for threshold in (
        "data wait below 5 % of the step is fine",
        "less than 70 % of the memory used",
    ):
        assert thresholds.count(threshold) == 1
    assert "XProf, input-pipeline analysis" in thresholds


@pytest.mark.parametrize(("name", "value"), [("loss", 1e19), ("step_s", 0.0)])
def test_a_page_of_steps_that_are_all_alike_and_absurd_is_whole(tmp_path, name, value):
    paths, _ = fabricate_run.fabricate(tmp_path / "run", fabricate_run.Scenario())
    for path in paths.run_dir.glob("timing/train/*/rank-*.steps"):
        steps = read_steps(path).steps.copy()
        for one in (name,) if name == "loss" else (*STEP_PHASES, name):
            steps[one] = value
        path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n" + steps.tobytes())
    page = render_html(build_report(read_inputs(paths, ()), ReportConfig()))
    assert page.rstrip().endswith("</html>")
