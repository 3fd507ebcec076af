from __future__ import annotations

import dataclasses
import re

import pytest

from slurm_jobs.report.numbers import make_tiles, make_verdict
from slurm_jobs.report.report_model import EvaluationNumbers
from slurm_jobs.shared import units
from slurm_jobs.shared.units import TimeShare


def tile(report, label):
    return next(t for t in report.tiles if t.label == label)


def test_the_data_wait_tile_is_the_quotient_that_stands_under_it(report_of):
    """Steps with a checkpoint make the mean step longer than the median one."""
    wait = tile(report_of(data_wait_s=0.1), "data wait")
    mean_wait, mean_step = map(float, re.findall(r"([\d.]+) m?s", wait.note))
    assert wait.value == f"{100 * mean_wait / mean_step:.0f} %"
    assert wait.note.endswith("a mean step")


def test_tiles_agree_on_why_a_single_step_has_no_rate(report_of):
    report = report_of(num_steps=1, stopped_at=None)
    notes = {tile(report, label).note for label in ("tokens/s", "data wait")}
    assert notes == {"no step is left after the warm-up"}


def result_tile(report, trainings, **evaluations):
    found = [EvaluationNumbers(stage=name, numbers=n) for name, n in evaluations.items()]
    return make_tiles(report.header, report.timeline, "", trainings, found)[-1]


@pytest.fixture
def small(report_of):
    return report_of(num_steps=40, stopped_at=None)


HELD_OUT = {"exact_match": 0.9875, "num_exact": 237, "num_samples": 240}
PROBED = {"exact_match": 0.1, "num_exact": 5, "num_samples": 50}


def test_the_result_is_of_the_training_that_the_rate_is_of(small):
    train = small.training[0]
    shorter = dataclasses.replace(train, stage="short", num_steps=3)
    tile = result_tile(small, (train, shorter), train=HELD_OUT, short=PROBED, probe=PROBED)
    assert (tile.value, tile.note) == ("98.8 %", "train: 237 of 240 held out")
    alone = result_tile(small, (train,), train=HELD_OUT)
    assert alone.note == "237 of 240 held out"


def test_a_result_of_another_stage_names_it(small):
    tile = result_tile(small, small.training, probe=PROBED)
    assert (tile.value, tile.note) == ("10.0 %", "probe: 5 of 50 held out")
    assert result_tile(small, (), probe={"exact_match": 0.1}).note == "probe"


def test_counts_of_another_stage_are_not_put_beside_a_share(small):
    tile = result_tile(small, small.training, train=HELD_OUT, probe={"num_samples": 50})
    assert tile.note == "237 of 240 held out"


def test_a_training_of_an_earlier_config_gives_the_tiles_only_where_there_is_no_other(small):
    train = small.training[0]
    earlier = dataclasses.replace(train, stage="old", num_steps=10_000, is_earlier=True)
    assert result_tile(small, (earlier, train)).label == "loss"
    assert result_tile(small, (earlier,)).note == "the newest job has no step"


@pytest.mark.parametrize(
    ("share", "part"), [(0.29, "the largest part"), (0.5, "the largest part"), (0.51, "most")]
)
def test_only_more_than_half_is_called_most_of_the_time(small, share, part):
    largest = TimeShare(name="prep running", kind="running", seconds=100 * share, share=share)
    verdict = make_verdict(small.header, (largest,), (), ())
    assert verdict.endswith(
        f"; {part} of the time went to prep running ({share:.0%}).".replace("%", " %")
    )


@pytest.mark.parametrize("status", ["failed", "stranded"])
def test_of_a_run_that_failed_no_finding_on_its_speed_comes_first(small, status):
    assert small.findings
    header = dataclasses.replace(small.header, status=status, status_reason="train failed")
    verdict = make_verdict(header, small.timeline, small.findings, ())
    assert "look first" not in verdict
    assert verdict.endswith("(train failed); `slurm-jobs status` says how to go on.")


def test_the_rate_is_written_alike_in_the_tile_and_in_the_training(small):
    rate = dataclasses.replace(small.training[0].tokens_per_s, value=4411.7)
    train = dataclasses.replace(small.training[0], tokens_per_s=rate)
    shown = make_tiles(small.header, small.timeline, "", (train,), ())[2]
    assert f"{shown.value} tokens/s" == units.quantity(rate) == "4,410 tokens/s"
