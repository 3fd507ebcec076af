"""Gaps and contradictions in step records are noted, and a profile explains its own."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_jobs.report.steps.step_notes import step_notes
from tests.slurm_jobs.report.builders import (
    attempts_of,
    make_steps,
    notes_with,
    rank_timing,
    report_on,
)
from tests.slurm_jobs.report.steps.profiled_steps import both_ranks, interrupted, profiled, records

__all__ = ["records"]


def test_notes_on_the_records_stand_in_the_report(run_of):
    paths, rows = run_of(stopped_at=None)
    file = paths.timing_dir("train", 0, 1) / "rank-00001.steps"
    file.write_bytes(file.read_bytes()[:-20_000])
    assert notes_with(report_on(paths, rows), "train, attempt 1: the ranks rec")


def notes_of(steps, spans=()):
    return step_notes(attempts_of(rank_timing(1, 0, steps, spans, num_ranks=1)))


@pytest.fixture
def steps():
    return make_steps(60)


def test_a_profile_that_is_written_between_two_steps_sets_no_clock(steps):
    spans = [
        interrupted(steps, "profile_prepare", 20, 1.5),
        interrupted(steps, "profile_write", 23, 13.0),
    ]
    assert notes_of(steps, spans) == ()
    assert "wall clock" in notes_of(steps)[0]  # where nothing says what it was


def test_a_clock_that_was_set_is_noted_together_with_a_profile(steps):
    spans = [interrupted(steps, "profile_write", 20, 13.0)]
    steps["start_unix_s"][40:] -= 100.0
    (note,) = notes_of(steps, spans)
    assert "the clock was set" in note


def test_spans_that_lie_within_steps_explain_no_gap(steps):
    interrupted(steps, "", 30, 13.0)
    start = float(steps["start_unix_s"][10])
    inside = {"name": "checkpoint", "start_unix_s": start, "duration_s": 0.4}
    (note,) = notes_of(steps, [inside])
    assert "gaps between steps" in note


def test_steps_whose_records_are_lost_between_two_attempts_are_noted():
    later = make_steps(30, first=170)
    later["start_unix_s"] += 1000
    timings = [
        rank_timing(attempt, 0, steps, num_ranks=1, training="one")
        for attempt, steps in ((1, make_steps(100)), (3, later))
    ]
    (note,) = step_notes(attempts_of(*timings))
    assert note == (
        "attempt 3: begins at step 170, and of the 70 steps before it there are no records: they "
        "are in no rate"
    )


@pytest.mark.parametrize(
    ("places", "num", "is_told"),
    [
        pytest.param(slice(50, 60), 60, True, id="last"),
        pytest.param(slice(20, 30), 60, False, id="earlier"),
        pytest.param(slice(0), 60, False, id="none"),
        pytest.param(np.arange(60) % 10 != 9, 58, False, id="some steps alone write it"),
    ],
)
def test_a_loss_that_is_nan_at_the_end_is_noted(steps, places, num, is_told):
    steps["loss"][places] = np.nan
    notes = notes_of(steps[:num])
    assert len(notes) == is_told
    assert all("the loss of the last 10 steps is not a number" in note for note in notes)


def test_a_profile_of_another_rank_sets_no_clock(records):
    assert step_notes(both_ranks(*profiled(records))) == ()


def test_a_step_that_had_begun_well_before_the_profile_sets_no_clock(records):
    short = [steps[:30] for steps in records]  # little time, beside which a part of a step counts
    found, spans = profiled(short)
    step_s = float(short[1]["step_s"][20])
    later = [{**span, "start_unix_s": span["start_unix_s"] + 0.5 * step_s} for span in spans]
    assert step_notes(both_ranks(found, later)) == ()
    elsewhere = [{**span, "start_unix_s": span["start_unix_s"] - 10 * step_s} for span in later]
    assert "the clock was set" in " ".join(step_notes(both_ranks(found, elsewhere)))
