"""Load of nodes: readings within the steps count, of which there must be enough."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from slurm_jobs.report.numbers.trainings.node_load import num_ranks_at_a_time, of_others
from tests.slurm_jobs.report.builders import finding, outcomes
from tests.slurm_jobs.report.loaded_nodes import cpus, loaded

__all__ = ["loaded"]

HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}


def test_readings_outside_of_the_steps_do_not_count(loaded):
    """Start-up and export leave devices idle for good reason."""
    report = loaded(readings={"gpu_busy": lambda n: 0.0 if n < 10 else 0.9})
    assert report.training[0].loads[0].gpu_busy.p5 == pytest.approx(0.9)


@pytest.mark.parametrize("last", [3, 8])
def test_a_few_readings_judge_nothing(loaded, last):
    """A sampler that died early, or GPUs that were hardly ever read."""

    def early(value):
        return lambda n: value if n < 10 + last else math.nan

    readings = {**cpus(early(0.1), early(0.9)), "gpu_busy": early(0.0)}
    report = loaded(data_wait_s=0.5, readings=readings)
    assert set(outcomes(report, "gpu-use", "gpu-fluctuates", "storage-queue")) == {"abstained"}
    assert "the cause is not known" in finding(report, "data-wait").confidence


def test_ranks_of_a_node_are_those_that_ran_there_at_the_same_time():
    def attempt(*nodes):
        return SimpleNamespace(ranks=[SimpleNamespace(node=node) for node in (*nodes, "")])

    attempts = [attempt("b", "b", "c", "c"), attempt("a", "a", "b", "b")]
    assert [num_ranks_at_a_time(attempts, node) for node in "abcd"] == [2, 2, 2, 0]


@pytest.mark.parametrize(
    ("parts", "others"),
    [
        pytest.param([(1, 4, 4.0, 4.0), (2, 16, 16.0, 16.0)], 0.0, id="two attempts of own work"),
        pytest.param([(1, 8, 8.0, math.nan), (1, 8, 7.0, 6.0)], 1.0, id="own time not read"),
    ],
)
def test_cores_held_by_others_are_computed_per_attempt(parts, others):
    """By attempt, number of cores, busy cores, and those of the job."""
    names = ("interval_s", "cpu_busy_share", "job_cpu_s_per_s")
    given = []
    for attempt, cores, busy, own in parts:
        rows = np.zeros(30, [("unix_s", "f8"), *((name, "f4") for name in names)])
        rows["interval_s"], rows["unix_s"] = 1.0, np.arange(30) + 1000 * attempt
        rows["cpu_busy_share"], rows["job_cpu_s_per_s"] = busy / cores, own
        metadata = {"cores": list(range(cores))}
        given.append((SimpleNamespace(node="n1", attempt=attempt, metadata=metadata), rows))
    assert of_others(given).mean == pytest.approx(others, abs=1e-5)
