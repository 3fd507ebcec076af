"""Hours that failed or were repeated: each second counts once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.slurm_jobs.report.attempts.hours import efficiency_of, hours_of
from tests.slurm_jobs.report.builders import (
    report_from,
    row_of,
    seconds_of,
    with_intents,
    with_rows,
    with_stage,
)


def replaced_by_a_later_submit(inputs, stage, slices):
    """Return inputs in which a later job, which has not started, covers these slices again."""
    last = max(inputs.intents, key=lambda intent: intent.number)
    newer = replace(
        next(intent for intent in inputs.intents if intent.stage == stage),
        number=last.number + 1,
        token="later",
        slices=slices,
    )
    return with_intents(inputs, *inputs.intents, newer)


def test_an_attempt_that_failed_is_lost_from_its_start_to_its_end(report_of):
    hours = hours_of(report_of(), "preprocess")
    assert hours["failed"] == pytest.approx(4 * 95 / 3600)
    assert hours["repeated"] == 0


def test_slices_that_a_later_job_does_again_are_priced_as_repeated(inputs_of):
    """Two slices of 380 s and 390 s on 4 cores had completed; the others stay."""
    report = report_from(replaced_by_a_later_submit(inputs_of(), "preprocess", (0, 2)))
    hours = hours_of(report, "preprocess")
    assert hours["repeated"] == pytest.approx(4 * (380 + 390) / 3600)
    assert hours["failed"] == pytest.approx(4 * 95 / 3600)


def test_steps_and_start_ups_that_were_made_again_are_repeated(report_of):
    report = report_of()
    (training,) = report.training
    lost_s = training.repeated_s + seconds_of(training.budget)["start-up again"]
    whole_s = sum(part.seconds for part in training.budget)
    gpu_hours = efficiency_of(report, "train").gpu_hours.value
    repeated = hours_of(report, "train", "gpu_hours")["repeated"]
    assert repeated / gpu_hours == pytest.approx(lost_s / whole_s, rel=0.1)
    assert hours_of(report, "train")["failed"] == 0  # it stopped and saved


def test_the_time_between_the_last_step_and_a_failure_left_nothing(inputs_of):
    """A training hangs for an hour before Slurm ends it."""
    inputs = inputs_of(stopped_at=None)
    row = row_of(inputs, "14")
    late = replace(row, state="TIMEOUT", end_unix_s=row.end_unix_s + 3600)
    hung = with_rows(with_stage(inputs, "train", completions=()), "14", late)
    failed = hours_of(report_from(hung), "train", "gpu_hours")["failed"]
    assert failed == pytest.approx(2 * 3612 / 3600, rel=0.01)
