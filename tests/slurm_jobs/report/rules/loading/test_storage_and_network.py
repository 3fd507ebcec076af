"""Slow storage and full links of nodes while steps wait for data."""

from __future__ import annotations

import pytest

from tests.slurm_jobs.report.builders import check, finding, outcomes
from tests.slurm_jobs.report.loaded_nodes import cpus, loaded

__all__ = ["loaded"]

HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}


def test_cores_that_wait_for_disks_starve_by_storage(loaded):
    report = loaded(data_wait_s=0.5, readings=cpus(0.2, 0.4, disk_read_bytes_per_s=5e6))
    assert "waits for this node's disks" in finding(report, "data-wait").text
    found = finding(report, "storage-queue")
    assert "40 % of the job's cores wait for disks, at 4.77 MiB read a second" in found.evidence[0]
    assert outcomes(loaded(readings=cpus(0.2, 0.4)), "storage-queue") == ("clear",)


@pytest.fixture
def networked(loaded):
    """Report a run whose node has a link of 10 Gb/s over which so much comes."""

    def make(received, *, busy=0.2, iowait=0.0, waits=0.5, link=10e9):
        host = cpus(busy, iowait, network_receive_bytes_per_s=received)
        return loaded(data_wait_s=waits, readings={**host, "link_bits_per_s": link})

    return make


def test_a_link_that_is_full_while_cores_and_disks_are_not_is_found(networked):
    found = finding(networked(1.1e9), "network-full")
    assert found.evidence[0] == "the links of gpu-01 receive at 88 % of their speed"
    assert found.title == "the network of gpu-01 is full, and the steps wait (train)"


@pytest.mark.parametrize(
    "changes", [{"received": 0.9e9}, {"busy": 0.9}, {"iowait": 0.3}, {"waits": 0.001}]
)
def test_a_full_link_is_no_cause_if_nothing_waits_or_more_is_full(networked, changes):
    assert outcomes(networked(**{"received": 1.1e9, **changes}), "network-full") == ("clear",)


def test_a_link_of_unknown_speed_is_not_judged(networked):
    found = check(networked(1e9, link=None), "network-full")
    assert found.outcome == "abstained"
    assert "the speed of the nodes" in found.reason
