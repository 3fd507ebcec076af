"""Time of a training's attempts from start to end: every second once, with a name."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from slurm_jobs.formats.timings.step_records import (
    PROCESS_EXIT_SPAN,
    STEP_FIELDS,
    spans_path,
    steps_path,
)
from slurm_jobs.report.numbers.trainings.training_time import attempt_budget
from tests.slurm_jobs.report.builders import (
    add_span,
    attempts_of,
    change_steps,
    rank_timing,
    report_on,
    seconds_of,
)


@pytest.fixture
def changed_budget(run_of):
    """Return the budget of a training before and after a change to its folder."""

    def make(change):
        paths, rows = run_of(stopped_at=None)
        before = report_on(paths, rows).training[0].budget
        change(paths.timing_dir("train", 0, 1))
        return before, report_on(paths, rows).training[0].budget

    return make


def test_the_end_of_an_attempt_is_explained_by_the_exit_of_its_process(changed_budget):
    def add_exit(folder):
        export = json.loads(spans_path(folder, 0).read_text().splitlines()[-1])
        assert export["name"] == "export"
        add_span(folder, 0, PROCESS_EXIT_SPAN, export["start_unix_s"] + export["duration_s"], 3.0)

    before, after = map(seconds_of, changed_budget(add_exit))
    assert after["process exit"] == pytest.approx(3.0)
    assert after["other ranks and supervisor"] == pytest.approx(0.5)  # to 12 s after the loop
    assert after["unexplained"] == pytest.approx(before["unexplained"] - 3.5)


def test_the_time_that_a_profile_takes_has_a_name(changed_budget):
    def profile(folder):
        begun = []

        def delay(steps):
            begun.append(float(steps["start_unix_s"][30]))
            steps["start_unix_s"][30:] += 8.0

        change_steps(folder, delay)
        for rank, start in enumerate(begun):
            add_span(folder, rank, "profile_write", start, 8.0)

    _, after = map(seconds_of, changed_budget(profile))
    assert after["profiles begun and written"] == pytest.approx(8.0, rel=1e-3)
    assert after.get("between steps", 0.0) < 1.0


def test_a_damaged_file_of_rank_0_leaves_no_step_unexplained(changed_budget):
    def damage(folder):
        header, _, body = steps_path(folder, 0).read_bytes().partition(b"\n")
        whole = 30 * len(body) // 400
        content = header + b"\n" + body[:whole] + bytes(len(body) - whole)
        steps_path(folder, 0).write_bytes(content)

    for was, now in zip(*changed_budget(damage), strict=True):
        assert (now.name, now.seconds) == (was.name, pytest.approx(was.seconds, abs=0.1))


@pytest.mark.parametrize("set_back_s", [0.0, 30.0, 3600.0])
def test_a_clock_that_is_set_back_counts_no_second_twice(set_back_s: float) -> None:
    records = np.zeros(100, [(name, code) for name, code in STEP_FIELDS])
    records["step"], records["step_s"] = np.arange(100), 1.0
    records["start_unix_s"] = 1e9 + np.arange(100) - np.where(np.arange(100) < 50, 0, set_back_s)
    attempts = attempts_of(rank_timing(1, 0, records))
    bar: Any = SimpleNamespace(start_unix_s=1e9 - 5, end_unix_s=1e9 + 110)
    lead: Any = SimpleNamespace(attempt=1, rank=0, spans=[], steps=None)
    found = seconds_of(attempt_budget(attempts, {1: bar}, [lead]))
    assert found["steps"] == pytest.approx(100)
    assert found["unexplained"] == pytest.approx(15)
    assert sum(found.values()) == pytest.approx(115)
