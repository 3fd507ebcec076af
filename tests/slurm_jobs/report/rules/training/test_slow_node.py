"""Nodes that probes measured slow: planted among their like, and when nothing is said."""

import re
from dataclasses import replace

import pytest

from tests.slurm_jobs.report.builders import check, finding
from tests.slurm_jobs.report.fabricate_run import CREATED
from tests.slurm_jobs.report.probed_nodes import OTHERS, alike, at, on_desk, probed, read

__all__ = ["probed", "read"]


def test_a_planted_slow_node_is_named_with_measure_numbers_date_and_knob(probed):
    found = finding(probed(*OTHERS, at("gpu-02", local_read_bytes_per_s=7e8)), "slow-node")
    assert found.title == "gpu-02 measured slow: node-local read is 35 % of similar nodes (train)"
    (evidence,) = found.evidence
    assert evidence.startswith("gpu-02, 2023-11-14 22:14:20 UTC: node-local read 700 MB/s")
    assert evidence.endswith("35 % of the median of 3 others (2.00 GB/s)")
    assert "stages.train.resources.slurm.exclude=gpu-02" in found.next_knob
    assert found.source.startswith("own choice")
    assert found.confidence.startswith("high")


def test_nodes_as_fast_as_the_others_are_clear(probed):
    found = check(probed(*alike("gpu-01", "gpu-02", "x1")), "slow-node")
    assert found.outcome == "clear"
    assert found.reason.startswith("2 of its 2 nodes were probed and compared")


def test_a_slow_node_that_the_training_did_not_use_is_no_finding(probed):
    slow = at("elsewhere", local_read_bytes_per_s=1e6)
    assert check(probed(*alike("gpu-01", "gpu-02", "x1"), slow), "slow-node").outcome == "clear"


def test_without_a_probe_the_rule_abstains_and_names_the_command(probed):
    found = check(probed(), "slow-node")
    assert found.outcome == "abstained"
    assert "`slurm-jobs probe /home/ada/shapes.yaml --nodes 3`" in found.reason


def test_with_one_other_node_the_rule_abstains_and_names_the_command(probed):
    found = check(probed(at("gpu-01"), at("gpu-02", local_read_bytes_per_s=1e6)), "slow-node")
    assert found.outcome == "abstained"
    assert "fewer than 2 other nodes of the same hardware" in found.reason
    assert "--nodes 3" in found.reason


@pytest.mark.parametrize(
    ("days", "busy_cores", "confidence"),
    [
        pytest.param(6, 0.1, "high", id="6 days"),
        pytest.param(9, 0.1, "medium.*9 days", id="9 days"),
        pytest.param(
            0, 30.0, "medium: other processes used 30.0 cores of gpu-02 meanwhile$", id="busy"
        ),
    ],
)
def test_an_old_probe_or_one_of_a_busy_node_is_trusted_less(probed, days, busy_cores, confidence):
    slow = at("gpu-02", local_read_bytes_per_s=7e8, other_busy_cores=busy_cores)
    slow = replace(slow, measured_unix_s=CREATED - days * 86400)
    found = finding(probed(*OTHERS, slow), "slow-node")
    assert re.match(confidence, found.confidence)
    assert ("days" in found.confidence) == (days == 9)


def test_a_slow_network_does_not_blame_one_end_for_certain(probed):
    slow = at("gpu-02", network_bytes_per_s=1e8)
    found = finding(probed(*OTHERS, slow), "slow-node")
    assert "with n9, which may be the slow one" in found.confidence


def test_a_single_machine_gets_no_command_that_cannot_help(read):
    found = check(on_desk(read(at("desk"))), "slow-node")
    assert found.outcome == "abstained"
    assert "there is no other machine" in found.reason
    assert "`" not in found.reason
