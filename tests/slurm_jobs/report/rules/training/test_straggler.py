"""Ranks that wait for each other: a slow one is named with its node, and no other."""

from __future__ import annotations

import pytest

from slurm_jobs.report.rules.training.straggler import straggler
from tests.slurm_jobs.report.builders import check, finding, make_steps
from tests.slurm_jobs.report.numbers.trainings.made_trainings import numbers_of
from tests.slurm_jobs.report.probed_nodes import OTHERS, alike, at, probed, read

__all__ = ["probed", "read"]

SOUND = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005, "num_ranks": 4}


def test_a_rank_that_computes_slowly_is_named_though_all_steps_are_equal(report_of):
    report = report_of(**SOUND | {"num_ranks": 2}, slow_rank_forward_s=0.25)
    ranks = report.training[0].ranks
    assert ranks[0].step_mean_s == pytest.approx(ranks[1].step_mean_s)
    assert ranks[0].phases_s["rank_wait"] == pytest.approx(0.25)
    found = finding(report, "straggler")
    assert "rank 1 on gpu-01 slows down the others, most in forward" in found.title
    assert "lower bound" in found.text
    assert "at most" not in found.ceiling  # hidden waits may be added to what is timed
    assert found.next_knob.startswith("All ranks are on gpu-01. Check what only rank 1 on gpu-01")
    assert "exclude" not in found.next_knob
    assert check(report, "unexplained").outcome == "clear"


def test_ranks_that_are_slow_in_turn_are_found_and_none_is_named(report_of):
    report = report_of(**SOUND, alternating_forward_s=0.3)
    found = finding(report, "straggler")
    assert "of each step waits for slower ranks" in found.title
    assert "No single rank is slow" in found.text


def test_the_straggler_says_that_its_node_was_measured_slow(probed):
    slow = at("gpu-02", matmul_bf16_flops_per_s=1e14)
    report = probed(*OTHERS, slow, slow_rank_forward_s=0.2)
    found = finding(report, "straggler")
    assert "rank 9 on gpu-02" in found.title
    assert found.evidence[-1].startswith(
        "probe of gpu-02, 2023-11-14 22:14:20 UTC: measured slow: matmul bf16 100 TFLOP/s, 40 %"
    )


def test_the_straggler_says_that_its_node_was_measured_equal(probed):
    report = probed(*alike("gpu-01", "gpu-02", "x1", "x2"), slow_rank_forward_s=0.2)
    assert finding(report, "straggler").evidence[-1] == (
        "probe of gpu-02, 2023-11-14 22:14:20 UTC: as fast as the other 3 probed nodes of the same "
        "hardware"
    )


def test_a_rank_that_waits_for_data_has_the_probe_of_its_node_as_evidence(probed):
    slow = at("gpu-02", local_read_bytes_per_s=7e8)
    report = probed(*OTHERS, slow, slow_rank_extra_s=0.3)
    assert "node-local read" in finding(report, "straggler").evidence[-1]


def test_without_a_probe_the_straggler_says_nothing_of_one(probed):
    evidence = finding(probed(slow_rank_forward_s=0.2), "straggler").evidence
    assert not any("probe" in line for line in evidence)


def test_records_without_the_waits_for_other_ranks_are_not_called_even():
    old = numbers_of([[make_steps(60)] * 2], lacking=frozenset({"rank_wait_s"}))
    assert old.straggler.slowest_over_mean is None
    check = straggler(old)
    assert (check.outcome, "older version" in check.reason) == ("abstained", True)
