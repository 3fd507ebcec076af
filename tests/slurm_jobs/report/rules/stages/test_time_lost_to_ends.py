"""Time that is lost when attempts end: when it is a finding, and when the headline has it."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_jobs.report.rules.stages.time_lost_to_ends import lost_between_attempts
from slurm_jobs.report.values.attempt_model import StageAttempts, StageLoss
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.run.attempt_history import AttemptEntry
from tests.slurm_jobs.report.builders import check, finding


def of_train(ending: Any = "time limit", *, num_steps: int | None = 10, **lost: float):
    """Three attempts of 300 s, with such losses."""
    entries = [
        AttemptEntry(
            stage="train", slice_index=0, attempt=number, job_id="7", restart=0, node="v1",
            start_unix_s=300.0 * number, end_unix_s=300.0 * number + 300.0,
            ending=ending if number < 3 else "completed", state="", reason="", num_steps=num_steps,
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    parts = {"startup_again_s": 0.0, "repeated_s": 0.0, "requeue_wait_s": 0.0, "whole_s": 900.0}
    return StageAttempts(
        stage="train",
        entries=tuple(entries),
        num_slices=1,
        num_explained=1,
        lost=StageLoss(**{**parts, **lost}),
    )


@pytest.mark.parametrize(
    ("seconds", "whole_s", "severity"),
    [(80.0, 900.0, None), (100.0, 900.0, "medium"), (240.0, 900.0, "high"), (240.0, 290.0, None)],
)
def test_a_tenth_of_the_time_is_found_and_a_quarter_is_high(
    seconds: float, whole_s: float, severity: str | None
) -> None:
    found = lost_between_attempts(of_train(startup_again_s=seconds, whole_s=whole_s))
    assert (found.severity if isinstance(found, Finding) else None) == severity


def test_the_title_names_the_large_parts_and_the_evidence_all() -> None:
    lost = {"startup_again_s": 315.0, "requeue_wait_s": 85.5, "repeated_s": 9.0}
    found = lost_between_attempts(of_train(**lost))
    assert isinstance(found, Finding)
    assert found.title == (
        "46 % of the time was lost when attempts ended: start-up again 35 %, requeue wait 9.5 % "
        "(train)"
    )
    assert "repeated work 9.00 s" in found.evidence[1]
    assert found.evidence[0].endswith("ended by: time limit 2")


@pytest.mark.parametrize(
    ("ending", "num_steps", "lost", "knob"),
    [
        ("time limit", 10, {"startup_again_s": 300.0}, "Request a longer time limit"),
        ("preempted", 10, {"requeue_wait_s": 300.0}, "Choose a partition without preemption"),
        ("preempted", 10, {"repeated_s": 300.0}, "Save more often"),
        ("out of memory", None, {"repeated_s": 300.0}, "Request more memory"),
        ("failed", None, {"repeated_s": 300.0}, "Remove the cause"),
    ],
)
def test_the_knob_fits_what_ended_the_attempts(
    ending: str, num_steps: int | None, lost: dict[str, float], knob: str
) -> None:
    found = lost_between_attempts(of_train(ending, num_steps=num_steps, **lost))
    assert isinstance(found, Finding)
    assert found.next_knob.startswith(knob)
    assert "`slurm-jobs status --stage train`" in found.next_knob


def test_the_headline_has_lost_time_if_that_is_the_largest_loss(report_of) -> None:
    lossy = report_of(data_wait_s=0.0)
    assert finding(lossy, "lost-time").evidence[0].endswith("ended by: preempted 1")
    assert "finding 1: 31 % of the time was lost when attempts ended" in lossy.verdict
    assert "waits for data" in report_of(data_wait_s=1.0).verdict


def test_a_stage_without_a_second_attempt_is_not_judged(report_of) -> None:
    report = report_of(stopped_at=None)
    assert not any(c.rule_id == "lost-time:train" for c in report.checks)
    assert isinstance(check(report_of(), "lost-time"), RuleOutcome)
