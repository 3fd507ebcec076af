"""Why steps wait for data, by the cores of the node."""

from __future__ import annotations

import re

import pytest

from tests.slurm_jobs.report.builders import finding
from tests.slurm_jobs.report.loaded_nodes import cpus, held, loaded

__all__ = ["held", "loaded"]

HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        pytest.param({"readings": cpus(0.97)}, "decoding.*cpus_per_task", id="decoding"),
        pytest.param(
            {"readings": cpus(0.97), "device": "cpu"},
            "on CPUs the model and the loader share them", id="cpu",
        ),
        pytest.param(
            {"readings": {**cpus(0.05), "cores": 8}, "config": {"num_loader_threads": 4}},
            "the storage is slow.*num_loader_threads is 4 on each of 2 ranks",
            id="threads of 2 ranks fill the cores",
        ),
        pytest.param(
            {"readings": cpus(0.05)},
            "too few threads or workers, or its storage is slow", id="threads not known",
        ),
    ],
)  # fmt: skip
def test_a_wait_for_data_is_explained_by_the_cores_of_the_node(loaded, planted, told):
    found = finding(loaded(data_wait_s=0.5, **planted), "data-wait")
    assert re.search(told, " ".join((found.text, found.next_knob, *found.evidence)))


def test_records_without_thread_times_still_attribute_the_busy_cores(held):
    text = finding(held(8.0, 3.0, data_wait_s=0.5), "data-wait").text
    assert "many of them with processes outside of the job" in text
