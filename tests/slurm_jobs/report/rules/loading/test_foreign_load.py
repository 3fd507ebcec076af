"""Cores of the job that other processes hold while the training waits for one."""

from __future__ import annotations

import math

import pytest

from tests.slurm_jobs.report.builders import check, finding
from tests.slurm_jobs.report.loaded_nodes import held, loaded

__all__ = ["held", "loaded"]

HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}


def test_cores_that_others_hold_while_the_training_waits_for_one_are_found(held):
    found = finding(held(8.0, 3.0), "foreign-load")
    assert found.title == "other processes use the job's cores on gpu-01 (train)"
    assert found.evidence[0] == (
        "of the 8 cores of gpu-01 that the job may use, other processes keep 5.0 busy, its own "
        "3.0: other processes use 5.0 of your 8 cores"
    )
    assert found.evidence[1].startswith("the main thread of rank 0 waits for a")
    assert "squeue -w gpu-01" in found.next_knob
    assert found.ceiling_times is None


OF_LOADER = {"core_wait_s": 0.0, "loader_s": (0.9, 0.3, 0.5)}


@pytest.mark.parametrize(
    ("own", "planted", "outcome", "reason"),
    [
        pytest.param(7.5, {}, "clear", "", id="its own work"),
        pytest.param(
            3.0, {"core_wait_s": 0.001}, "clear", "its threads rarely wait for a core",
            id="no wait",
        ),
        pytest.param(3.0, OF_LOADER, "clear", "", id="a loader for which no step waits"),
        pytest.param(math.nan, {"core_wait_s": math.nan}, "abstained", "", id="no own time"),
        pytest.param(3.0, {"core_wait_s": math.nan}, "abstained", "", id="no waits for cores"),
    ],
)  # fmt: skip
def test_busy_cores_that_others_do_not_take_from_the_job_are_no_finding(
    held, own, planted, outcome, reason
):
    found = check(held(8.0, own, **planted), "foreign-load")
    assert found.outcome == outcome
    assert found.reason.endswith(reason)


def test_a_neighbour_on_cores_that_the_job_did_not_ask_for_is_no_finding(held):
    """Nothing binds the job, so that it may use all 64 cores; 56 are its neighbours' by right."""
    assert check(held(64.0, 8.0, cores=64), "foreign-load").outcome == "clear"
    taken = finding(held(64.0, 4.0, cores=64), "foreign-load")
    assert taken.evidence[0].endswith("other processes use 4.0 of your 8 cores")


def test_a_loader_that_waits_for_cores_counts_while_steps_wait_for_data(held):
    """The main thread sleeps until its data is there, and so waits for no core."""
    report = held(8.0, 3.0, data_wait_s=0.5, **OF_LOADER)
    last = finding(report, "foreign-load").evidence[-1]
    assert last.startswith("the loader's threads of rank ")
    data_wait = finding(report, "data-wait")
    assert data_wait.cause == "cores"
    assert "processes outside of the job have them" in data_wait.text
