"""The page: whole, small, and never more than a page, whatever the records of a run say."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.base.errors import SlurmJobsError
from slurm_jobs.base.shipped_files import shipped_path
from slurm_jobs.base.texts.control_characters import STEERING
from slurm_jobs.formats.timings.step_records import STEP_PHASES
from slurm_jobs.report.numbers.trainings.rank_numbers import PHASE_KINDS
from slurm_jobs.report.page.markup import join, prose
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.run_folder.paths import RunPaths
from tests.fuzz import test_shown_names
from tests.fuzz.budget import examples
from tests.slurm_jobs.report.builders import change_steps, report_on

EVIL = "<script>alert(1)</script>"


class ParsedPage(HTMLParser):
    """A page as a browser takes it apart; all that is opened is closed, and nothing loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)
        self.close()
        assert self.open == []
        assert not self.tags & {
            "script", "link", "img", "iframe", "object", "embed", "form", "base", "a"
        }  # fmt: skip

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        loading = {"src", "href", "srcset", "data", "action"}
        assert not [key for key, _ in attrs if key in loading or key.startswith("on")]
        if tag not in {"meta", "br", "hr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


@pytest.fixture(scope="module")
def page(report_of) -> str:
    return render_html(report_of())


@pytest.fixture(scope="module")
def style() -> str:
    return shipped_path("templates", "report", "page.css").read_text()


def colours_of(style: str) -> list[dict[str, str]]:
    """The colours by name, of the light scheme and of the dark one."""
    roots = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    return [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", root)) for root in roots]


# What is in no page.


def test_the_page_asks_for_nothing_from_outside_and_runs_no_script(page):
    ParsedPage(page)
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


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


def test_a_dollar_in_a_value_is_not_taken_for_a_placeholder(report_of):
    assert "$style $header" in render_html(report_of(name="$style $header"))


@pytest.fixture(scope="module")
def sound(run_of) -> Path:
    """A run folder, next to which a stranger's is put."""
    few = {"num_steps": 60, "stopped_at": 40, "resumed_at": 30}
    return run_of(rejects={"bad_row": 3}, **few)[0].run_dir


def places_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all texts in JSON."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places_of(item, (*path, key))


@examples(60)
@given(st.data())
def test_no_record_of_a_run_leaves_its_place_on_the_page(sound: Path, data: st.DataObject) -> None:
    run_dir = sound.parent / "hostile"
    shutil.rmtree(run_dir, ignore_errors=True)
    shutil.copytree(sound, run_dir)
    files = sorted(path for path in run_dir.rglob("*.json") if path.is_file())
    for file in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=4)):
        value = json.loads(file.read_text())
        places = list(places_of(value))
        if places:
            *parents, key = data.draw(st.sampled_from(places))
            holder = value
            for parent in parents:
                holder = holder[parent]
            holder[key] = data.draw(test_shown_names.EVIL)
        file.write_text(json.dumps(value))
    with contextlib.suppress(SlurmJobsError):  # records that are refused make no page
        page = render_html(report_on(RunPaths(run_dir)))
        ParsedPage(page)
        assert not STEERING.search(page)


# What every page has.


@pytest.mark.parametrize("finished", [True, False])
def test_a_page_without_accounting_or_end_is_whole(report_of, finished):
    few = {"num_steps": 3, "stopped_at": None}
    page = render_html(report_of(with_accounting=False, finished=finished, **few))
    ParsedPage(page)
    assert "no accounting" in page


@pytest.mark.parametrize("names", [("loss",), (*STEP_PHASES, "step_s")], ids=["loss", "seconds"])
def test_a_page_of_steps_that_are_all_alike_and_absurd_is_whole(run_of, names):
    paths, _ = run_of(stopped_at=None)

    def flatten(steps):
        for name in names:
            steps[name] = 1e19 if name == "loss" else 0.0

    change_steps(paths.timing_dir("train", 0, 1), flatten)
    assert render_html(report_on(paths)).rstrip().endswith("</html>")


def test_a_page_stays_small_with_many_tasks_ranks_and_steps(report_of):
    times = tuple(300.0 + i % 17 for i in range(600))
    report = report_of(task_times_s=times, num_ranks=64, num_steps=600, stopped_at=None)
    page = render_html(report)
    ParsedPage(page)
    assert "preprocess x 600" in page
    assert "48 ranks in between are not drawn" in page
    assert len(page.encode()) < 500_000


def test_the_slow_rank_is_drawn_among_many(report_of):
    page = render_html(report_of(num_ranks=40, slow_rank_forward_s=0.3, stopped_at=None))
    ranks = page.partition("<h3>Ranks, slowest first</h3>")[2]
    assert re.search(r">(rank \d+)<", ranks)[1] == "rank 39"
    assert "waiting for other ranks" in page


def test_one_attempt_is_no_plural(report_of):
    page = render_html(report_of(stopped_at=None))
    assert "400 in 1 attempt, on 2 ranks<" in page
    assert not re.search(r"\b1 (attempts|ranks|steps)\b", page)


def test_no_axis_label_is_broken(page):
    charts = re.findall(r'<div class="chart"[^>]*>', page)
    assert charts
    assert all("white-space:nowrap" in chart and "max-content" in chart for chart in charts)


def test_the_threshold_of_each_rule_is_on_the_page_once(page):
    thresholds = page.partition("<h3>Thresholds</h3>")[2]
    assert thresholds.count("data wait below 5 % of the step is fine") == 1
    assert thresholds.count("less than 70 % of the requested memory used") == 1
    assert "XProf, input-pipeline analysis" in thresholds


def test_every_cell_names_its_column_for_screens_too_narrow_for_a_table(page, style):
    cells = re.findall(r"<td[^>]*>", page)
    assert cells
    assert all("data-label=" in cell for cell in cells)
    assert "content: attr(data-label)" in style


def test_names_of_ranks_and_slices_wrap_on_narrow_screens(style):
    narrow = style.partition("@media (max-width: 620px)")[2].partition("@media")[0]
    labels = re.search(r"\.row \.label, \.rank \.label \{(.*?)\}", narrow)
    assert "white-space: normal" in labels[1]


def test_every_step_phase_has_a_colour_of_its_own_in_both_schemes(style):
    shown = dict(re.findall(r"\.k-(\w+)(?:, \.k-[\w-]+)* \{ background: var\(--([\w-]+)\)", style))
    for colours in colours_of(style):
        assert len({colours[shown[kind]] for kind in PHASE_KINDS}) == len(PHASE_KINDS)


def relative_luminance(colour: str) -> float:
    """WCAG 2.1, definition of relative luminance."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "ground"),
    [
        *((ink, ground) for ink in ("ink", "dim") for ground in ("page", "card")),
        ("ink", "soft"),
        ("accent", "card"),
        *((f"{name}-ink", f"{name}-bg") for name in ("bad", "mid", "good", "note")),
    ],
)
def test_text_has_a_contrast_of_at_least_four_and_a_half(style, scheme, ink, ground):
    colours = colours_of(style)[scheme]
    dark, light = sorted(relative_luminance(colours[name]) for name in (ink, ground))
    assert (light + 0.05) / (dark + 0.05) >= 4.5
