"""Whether communication was hidden, and whether that made a run any faster."""

from __future__ import annotations

import pytest

from slurm_jobs.base import units
from slurm_jobs.report.comparison.communication_text import communication_lines
from slurm_jobs.report.comparison.compare import compare
from slurm_jobs.report.values.training_model import ExposedCommunication
from tests.slurm_jobs.report.comparison.arms import arm


def exposed_arm(name, *speeds, exposed, communicating=0.25, **values):
    found = ExposedCommunication(
        rank=0, attempt=1, num_steps=8, share=exposed, communication_share=communicating
    )
    return arm(name, *speeds, exposed=found, **values)


def lines(first, second):
    return communication_lines(compare(first, second))


PLAIN = (1000, 1002)


@pytest.mark.parametrize(
    ("exposed", "speeds", "told"),
    [
        pytest.param(
            (0.2, 0.01), (1001, 1003),
            "less time is exposed communication in B: by that alone B / A would be 1.24, and it is "
            "1.00. More communication is hidden, yet B is not surely faster",
            id="a prefetch that overlaps and is no faster",
        ),
        pytest.param(
            (0.2, 0.01), (1200, 1203),
            "less time is exposed communication in B: by that alone B / A would be 1.24, and it is "
            "1.20",
            id="hidden communication that pays",
        ),
        pytest.param(
            (0.01, 0.2), (900, 903),
            "more time is exposed communication in B: by that alone B / A would be 0.81, and it is "
            "0.90",
            id="more exposed communication",
        ),
        pytest.param((0.2, 0.2), (1001, 1003), None, id="equal"),
        pytest.param((0.2, 0.19), (1001, 1003), None, id="alike"),
    ],
)  # fmt: skip
def test_predicted_and_measured_gain_of_hidden_communication_are_printed(exposed, speeds, told):
    first, second = exposed
    said = lines(exposed_arm("a", *PLAIN, exposed=first), exposed_arm("b", *speeds, exposed=second))
    for name, share, line in zip("AB", exposed, said, strict=False):
        assert line == f"{name}: 25 % of 16 steps, {units.percent(share)} exposed"
    if told is None:
        assert len(said) == 2
    elif told.endswith("faster"):
        assert said[2].startswith(told)
    else:
        assert said[2] == told


def test_a_step_that_communicates_less_hides_nothing_by_that():
    first = exposed_arm("a", 1000, 1002, exposed=0.2, communicating=0.5)
    second = exposed_arm("b", 1001, 1003, exposed=0.05, communicating=0.05)
    assert "There is less communication, yet B is not surely faster" in lines(first, second)[2]


@pytest.mark.parametrize("other", [{"num_ranks": 4}, {"samples_per_step": 128.0}])
def test_nothing_is_promised_where_steps_do_other_work(other):
    first = exposed_arm("a", 1000, 1002, exposed=0.2)
    second = exposed_arm("b", 1900, 1903, exposed=0.01, **other)
    assert len(lines(first, second)) == 2


def test_an_arm_without_profiled_steps_says_how_to_have_some():
    said = lines(exposed_arm("a", 1000, 1002, exposed=0.2), arm("b", 1001, 1003))
    assert said[1] == "B: no steps were profiled (`profile: {steps: [20, 40]}`)"
    assert len(said) == 2


def test_without_any_profile_nothing_is_reported():
    assert lines(arm("a", 1000, 1002), arm("b", 1001, 1003)) == []
