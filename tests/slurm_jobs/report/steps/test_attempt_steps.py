"""Steps that attempts repeated, and those of a config that was abandoned."""

from __future__ import annotations

import pytest

from slurm_jobs.report.steps.attempt_steps import split_attempts
from tests.slurm_jobs.report.builders import (
    edited,
    make_steps,
    notes_with,
    rank_timing,
    report_on,
    seconds_of,
)
from tests.slurm_jobs.report.numbers.trainings.made_trainings import numbers_of


def after_new_config(run_of, **properties):
    """The report of a training whose second attempt worked under another fingerprint."""
    paths, rows = run_of(**properties)
    with edited(paths.attempt("train", 0, 2)) as record:
        record["fingerprint"] = "0ther"
    return report_on(paths, rows)


def test_steps_of_an_abandoned_config_are_not_called_repeated(run_of):
    report = after_new_config(run_of, stopped_at=60, resumed_at=0)
    numbers = report.training[0]
    assert (numbers.num_steps, numbers.num_repeated_steps, numbers.repeated_s) == (400, 0, 0.0)
    assert numbers.num_abandoned_steps == 60
    assert numbers.abandoned_s > 30
    assert not any("repeated-steps" in finding.rule_id for finding in report.findings)
    assert notes_with(report, "train, attempt 1: 60 steps under an earlier config or code")
    assert numbers.curves.resumed_at == ()
    found = seconds_of(numbers.budget)
    assert found["steps of an earlier config"] == pytest.approx(numbers.abandoned_s)
    assert "steps repeated later" not in found


def test_steps_that_a_new_config_goes_on_from_and_does_again_are_repeated(run_of):
    report = after_new_config(run_of)
    numbers = report.training[0]
    assert (numbers.num_steps, numbers.num_repeated_steps) == (400, 20)
    assert numbers.num_abandoned_steps == 0
    assert not notes_with(report, "earlier config")


FROM_START, GOES_ON = [slice(60), slice(100)], [slice(60), slice(40, 80), slice(100)]


@pytest.mark.parametrize(
    ("parts", "fingerprints", "said", "repeated", "abandoned"),
    [
        pytest.param(
            [*GOES_ON[:2], slice(100), slice(30)], "1221", {}, 60 + 40 + 100, 0,
            id="a config that went on from another is the same training from then on",
        ),
        pytest.param(
            FROM_START, "12", {"training": "7ra1n"}, 60, 0,
            id="before the first checkpoint, and the training says so",
        ),
        pytest.param(FROM_START, "12", {}, 0, 60, id="before the first checkpoint, older records"),
        pytest.param(GOES_ON, "112", {}, 20, 40 + 40, id="twice within an abandoned config"),
        pytest.param(GOES_ON, "111", {}, 60 + 40, 0, id="one config"),
    ],
)  # fmt: skip
def test_steps_are_repeated_or_abandoned(parts, fingerprints, said, repeated, abandoned):
    steps = make_steps(100)
    numbers = numbers_of([[steps[part]] for part in parts], fingerprints, **said)
    assert (numbers.num_repeated_steps, numbers.num_abandoned_steps) == (repeated, abandoned)
    assert numbers.num_steps == parts[-1].stop


@pytest.mark.parametrize(
    ("second", "begun", "repeated", "abandoned"),
    [
        ("ab", 3, [3, 4, 5, 6, 7, 8], []),
        ("ab2", 3, [], [3, 4, 5, 6, 7, 8]),
        ("ab2", 1, [1, 2], [3, 4, 5, 6, 7, 8]),
        ("ab2", 5, [5, 6, 7, 8], []),  # went on from a checkpoint of that phase all the same
    ],
)
def test_only_the_steps_from_a_changed_phase_on_are_other_work(second, begun, repeated, abandoned):
    steps, timings = make_steps(9), []
    for attempt, own, last in ((1, steps, "ab"), (2, steps[begun:7], second)):
        phases = [{"first_step": 0, "training": "a"}, {"first_step": 3, "training": last}]
        said = {"num_ranks": 1, "training": last, "phases": phases}
        timings.append(rank_timing(attempt, 0, own, **said))
    first, _ = split_attempts(timings, 0, {1: "one", 2: "two"})
    assert first.kept(0)["step"].tolist() == list(range(begun))
    assert first.repeated(0)["step"].tolist() == repeated
    assert first.abandoned(0)["step"].tolist() == abandoned
