"""The page: whole, small, and never more than a page, whatever the records of a run say."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.base.errors import SlurmJobsError
from slurm_jobs.base.texts.control_characters import STEERING
from slurm_jobs.formats.timings.step_records import STEP_PHASES
from slurm_jobs.report.numbers.trainings.rank_numbers import PHASE_KINDS
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.run_folder.paths import RunPaths
from tests.fuzz import test_shown_names
from tests.fuzz.budget import examples
from tests.slurm_jobs.report.builders import change_steps, report_on
from tests.slurm_jobs.report.page.parsed_page import ParsedPage, page, style

__all__ = ["page", "style"]


def colours_of(style: str) -> list[dict[str, str]]:
    """The colours by name, of the light scheme and of the dark one."""
    roots = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    return [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", root)) for root in roots]


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
