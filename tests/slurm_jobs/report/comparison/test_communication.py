"""Whether communication was hidden, and whether that made a run any faster."""

import dataclasses
import json

import pytest

from slurm_jobs.report.compare import compare
from slurm_jobs.report.compare_text import communication_lines
from slurm_jobs.report.report_model import ExposedCommunication
from slurm_jobs.report.run_measures import measure
from slurm_jobs.shared.timings import OPERATORS_FORMAT_NAME, operators_path
from tests.slurm_jobs.report.comparison.fabricated import fabricated
from tests.slurm_jobs.report.comparison.measured import measured


def arm(name, *speeds, exposed=None, communicating=0.25):
    found = exposed and ExposedCommunication(
        rank=0, attempt=1, num_steps=8, share=exposed, communication_share=communicating
    )
    return [measured(f"{name}{i}", tokens_per_s=s, exposed=found) for i, s in enumerate(speeds)]


def lines(first, second):
    return communication_lines(compare(first, second))


def test_a_prefetch_that_overlaps_and_is_no_faster_is_read_off():
    said = lines(arm("a", 1000, 1002, exposed=0.2), arm("b", 1001, 1003, exposed=0.01))
    assert said[0] == "A: 25 % of 16 steps, 20 % exposed"
    assert said[1] == "B: 25 % of 16 steps, 1.0 % exposed"
    assert said[2].startswith(
        "less time is exposed communication in B: by that alone B / A would be 1.24, and it is "
        "1.00. It is hidden, and yet B is not surely faster"
    )


def test_hidden_communication_that_pays_is_said_beside_what_it_promised():
    said = lines(arm("a", 1000, 1002, exposed=0.2), arm("b", 1200, 1203, exposed=0.01))
    assert said[2] == (
        "less time is exposed communication in B: by that alone B / A would be 1.24, and it is 1.20"
    )


def test_more_exposed_communication_is_no_promise_of_speed():
    said = lines(arm("a", 1000, 1002, exposed=0.01), arm("b", 900, 903, exposed=0.2))
    assert said[2] == (
        "more time is exposed communication in B: by that alone B / A would be 0.81, and it is 0.90"
    )


@pytest.mark.parametrize("after", [0.2, 0.19])
def test_shares_that_are_alike_promise_nothing(after):
    assert len(lines(arm("a", 1000, 1002, exposed=0.2), arm("b", 1001, 1003, exposed=after))) == 2


def test_a_step_that_communicates_less_hides_nothing_by_that():
    first = arm("a", 1000, 1002, exposed=0.2, communicating=0.5)
    second = arm("b", 1001, 1003, exposed=0.05, communicating=0.05)
    assert "It is less, and yet B is not surely faster" in lines(first, second)[2]


@pytest.mark.parametrize("other", [{"num_ranks": 4}, {"samples_per_step": 128.0}])
def test_nothing_is_promised_where_steps_do_other_work(other):
    first = arm("a", 1000, 1002, exposed=0.2)
    second = [dataclasses.replace(run, **other) for run in arm("b", 1900, 1903, exposed=0.01)]
    assert len(lines(first, second)) == 2


def test_an_arm_without_profiled_steps_says_how_to_have_some():
    said = lines(arm("a", 1000, 1002, exposed=0.2), arm("b", 1001, 1003))
    assert said[1] == "B: no steps were profiled (`profile: {steps: [20, 40]}`)"
    assert len(said) == 2


def test_without_any_profile_nothing_is_said():
    assert lines(arm("a", 1000, 1002), arm("b", 1001, 1003)) == []


def write_profile(paths, attempt, exposed_s):
    table = {"first_step": 10, "num_steps": 8, "wall_s": 2.0, "operators": []}
    times = {"communication_s": 0.5, "exposed_communication_s": exposed_s}
    path = operators_path(paths.timing_dir("train", 0, attempt), 0)
    path.write_text(json.dumps({"format": OPERATORS_FORMAT_NAME, **table, **times}))


def test_profiles_are_of_the_attempts_whose_speed_is_told(tmp_path):
    paths = fabricated(tmp_path / "run")
    assert measure(paths.run_dir).exposed is None
    write_profile(paths, 1, 0.4)
    write_profile(paths, 2, 0.1)
    found = measure(paths.run_dir).exposed
    assert (found.attempt, found.share, found.communication_share) == (2, 0.05, 0.25)


def test_a_profile_of_an_earlier_config_is_not_this_ones(tmp_path):
    paths = fabricated(tmp_path / "run")
    write_profile(paths, 1, 0.4)
    record = json.loads(paths.attempt("train", 0, 1).read_text())
    paths.attempt("train", 0, 1).write_text(json.dumps({**record, "fingerprint": "earlier"}))
    assert measure(paths.run_dir).exposed is None
