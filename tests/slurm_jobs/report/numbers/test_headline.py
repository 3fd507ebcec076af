"""The verdict and the tiles at the top of a report."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from slurm_jobs.base import units
from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.report.numbers.headline import make_tiles, make_verdict, without_failures
from slurm_jobs.report.values.data_model import EvaluationNumbers
from tests.slurm_jobs.report.builders import printed


def tile(report, label):
    return next(t for t in report.tiles if t.label == label)


def test_the_data_wait_tile_equals_the_quotient_below_it(report_of):
    """Steps with a checkpoint make the mean step longer than the median one."""
    wait = tile(report_of(data_wait_s=0.1), "data wait")
    mean_wait, mean_step = map(float, re.findall(r"([\d.]+) m?s", wait.note))
    assert wait.value == f"{100 * mean_wait / mean_step:.0f} %"
    assert wait.note.endswith("per step")


def test_tiles_agree_on_why_a_single_step_has_no_rate(report_of):
    report = report_of(num_steps=1, stopped_at=None)
    notes = {tile(report, label).note for label in ("tokens/s", "data wait")}
    assert notes == {"no step is left after the warm-up"}


@pytest.fixture
def small(report_of):
    return report_of(num_steps=40, stopped_at=None)


HELD_OUT = {"exact_match": 0.9875, "num_exact": 237, "num_samples": 240}
PROBED = {"exact_match": 0.1, "num_exact": 5, "num_samples": 50}
SHORTER = {"stage": "short", "num_steps": 3}
EARLIER = {"stage": "old", "num_steps": 10_000, "is_earlier": True}


@pytest.mark.parametrize(
    ("trainings", "evaluations", "value", "note"),
    [
        pytest.param(
            [{}, SHORTER], {"train": HELD_OUT, "short": PROBED, "probe": PROBED},
            "98.8 %", "train: 237 of 240 held out", id="of the training that the rate is of",
        ),
        pytest.param([{}], {"train": HELD_OUT}, "98.8 %", "237 of 240 held out", id="alone"),
        pytest.param(
            [{}], {"probe": PROBED}, "10.0 %", "probe: 5 of 50 held out", id="another stage"
        ),
        pytest.param([], {"probe": {"exact_match": 0.1}}, "10.0 %", "probe", id="no training"),
        pytest.param(
            [{}], {"train": HELD_OUT, "probe": {"num_samples": 50}},
            "98.8 %", "237 of 240 held out", id="counts of another stage",
        ),
        pytest.param([EARLIER, {}], {}, None, "last step", id="a training of an earlier config"),
        pytest.param([EARLIER], {}, "n/a", "the newest job has no step", id="earlier alone"),
    ],
)  # fmt: skip
def test_the_result_tile_names_the_stage_that_it_is_of(small, trainings, evaluations, value, note):
    found = [EvaluationNumbers(stage=name, numbers=n) for name, n in evaluations.items()]
    made = tuple(replace(small.training[0], **changes) for changes in trainings)
    shown = make_tiles(small.header, small.timeline, "", made, found)[-1]
    assert note in shown.note if value is None else shown.note == note
    assert shown.label == "loss" if value is None else shown.value == value


@pytest.mark.parametrize(
    ("share", "part"), [(0.29, "the largest part"), (0.5, "the largest part"), (0.51, "most")]
)
def test_only_more_than_half_is_called_most_of_the_time(small, share, part):
    largest = TimeShare(name="prep running", kind="running", seconds=100 * share, share=share)
    verdict = make_verdict(small.header, (largest,), (), ())
    assert verdict.endswith(f"; {part} of the time went to prep running ({100 * share:.0f} %).")


@pytest.mark.parametrize("status", ["failed", "stranded"])
def test_of_a_run_that_failed_no_finding_on_its_speed_comes_first(small, status):
    assert small.findings
    header = replace(small.header, status=status, status_reason="train failed")
    verdict = make_verdict(header, small.timeline, small.findings, ())
    assert "look first" not in verdict
    assert verdict.endswith("(train failed); `slurm-jobs status` says how to go on.")


def test_the_rate_is_written_alike_in_the_tile_and_in_the_training(small):
    rate = replace(small.training[0].tokens_per_s, value=4411.7)
    train = replace(small.training[0], tokens_per_s=rate)
    shown = make_tiles(small.header, small.timeline, "", (train,), ())[2]
    assert f"{shown.value} tokens/s" == units.quantity(rate) == "4,410 tokens/s"


def test_failures_that_were_printed_elsewhere_are_left_out(report_of) -> None:
    tuned = replace(report_of(), tunings=("`tune` found a batch of 8 to be 12 % faster.",))
    shown = without_failures(tuned, {"train, slice 0, attempt 1, job 14"})
    assert "found a batch of 8 to be 12 % faster." in shown.verdict
    assert "attempt 1, job 14" not in printed(shown, 250)
    assert "attempt 1, job 12_1" in printed(shown, 250)
