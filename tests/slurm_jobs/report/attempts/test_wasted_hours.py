"""Hours that failed, were repeated, or were idle: each second counts once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.slurm_jobs.report.builders import (
    report_from,
    row_of,
    seconds_of,
    with_intents,
    with_rows,
    with_stage,
)


def efficiency_of(report, name):
    return next(stage for stage in report.efficiency if stage.stage == name)


def hours_of(report, name, resource="cpu_hours"):
    waste = efficiency_of(report, name).waste
    return {each.kind: getattr(each, resource).value for each in waste}


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


def test_idle_cores_are_those_of_the_work_that_counts(report_of):
    report = report_of(cpu_share=0.25)
    for name in ("preprocess", "consolidate", "train"):
        allocated, hours = efficiency_of(report, name).cpu_hours.value, hours_of(report, name)
        kept = allocated - hours["failed"] - hours["repeated"]
        assert hours["idle"] == pytest.approx(0.75 * kept)


def test_gpus_without_readings_have_unknown_idle_hours(report_of):
    idle = efficiency_of(report_of(), "train").waste[-1]
    assert idle.gpu_hours.value is None
    assert "no reading" in idle.gpu_hours.missing
    assert hours_of(report_of(), "preprocess", "gpu_hours")["idle"] == 0


def test_an_attempt_whose_end_is_unknown_makes_the_loss_a_lower_bound(inputs_of):
    inputs = inputs_of()
    done = with_rows(with_stage(inputs, "consolidate", completions=()), "13", state="COMPLETED")
    waste = efficiency_of(report_from(done), "consolidate").waste
    assert [each.cpu_hours.value for each in waste[:2]] == [0, 0]
    assert waste[0].cpu_hours.at_least == "it is not known how 1 attempt ended"


def test_without_accounting_no_hour_is_known_to_be_lost(report_of):
    report = report_of(with_accounting=False)
    assert hours_of(report, "preprocess") == {"failed": None, "repeated": None, "idle": None}
