"""A run folder of a stranger's: whatever its records say, the page stays a page."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.report.html import render_html
from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.errors import SlurmJobsError
from slurm_jobs.shared.redact import STEERING
from tests.fuzz.budget import examples
from tests.fuzz.test_shown_names import EVIL
from tests.slurm_jobs.report import fabricate_run
from tests.slurm_jobs.report.parsed_page import parse

FORBIDDEN = {"script", "link", "img", "iframe", "object", "embed", "form", "base", "a"}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("sound") / "run"
    fabricate_run.fabricate(run_dir, fabricate_run.Scenario(rejects={"bad_row": 3}))
    return run_dir


def texts_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all texts in JSON."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from texts_of(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts_of(item, (*path, index))
    elif isinstance(value, str):
        yield path


def replace_at(value: Any, path: tuple[Any, ...], text: str) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = text


def records_of(run_dir: Path) -> list[Path]:
    return sorted(path for path in run_dir.rglob("*.json") if path.is_file())


@examples(60)
@given(st.data())
def test_no_record_of_a_run_leaves_its_place_on_the_page(sound: Path, data: st.DataObject) -> None:
    run_dir = sound.parent / "hostile"
    shutil.rmtree(run_dir, ignore_errors=True)
    shutil.copytree(sound, run_dir)
    for file in data.draw(st.lists(st.sampled_from(records_of(run_dir)), min_size=1, max_size=4)):
        value = json.loads(file.read_text())
        places = list(texts_of(value))
        if places:
            replace_at(value, data.draw(st.sampled_from(places)), data.draw(EVIL))
        file.write_text(json.dumps(value))
    with contextlib.suppress(SlurmJobsError):  # records that are refused make no page
        page = render_html(build_report(read_inputs(RunPaths(run_dir), ()), ReportConfig()))
        parsed = parse(page)
        assert not parsed.tags & FORBIDDEN
        assert parsed.links == []
        assert not STEERING.search(page)
