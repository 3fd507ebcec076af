"""Steps that wait for data are found, with the cause that the node of the rank shows."""

from __future__ import annotations

import pytest

from tests.slurm_jobs.report.builders import finding, outcomes, report_on
from tests.slurm_jobs.report.fabricate_readings import write_readings
from tests.slurm_jobs.report.loaded_nodes import cpus, loaded

__all__ = ["loaded"]

HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}


def test_the_starved_gpus_of_the_example_are_found_to_wait_for_storage(loaded):
    """GPUs 20 % busy in spikes, cores 2 %, 16 loader workers that wait for small files."""
    report = loaded(
        data_wait_s=2.0,
        readings={**cpus(0.02), "gpu_busy": lambda n: 0.0 if n % 5 else 1.0, "cores": 16},
        config={"num_loader_threads": 16},
    )
    first = report.findings[0]
    assert (first.rule_id, first.severity) == ("data-wait:train", "high")
    assert "the storage is slow" in first.text
    assert "large shards on node-local storage" in first.next_knob
    assert "More threads or workers only queue up" in first.next_knob
    assert outcomes(report, "gpu-use", "gpu-fluctuates") == ("found", "found")


def test_evidence_of_a_data_wait_is_from_the_node_of_the_waiting_rank(run_of):
    paths, _ = run_of(num_ranks=16, slow_rank_extra_s=2.0, stopped_at=None)
    for node, busy in ((0, 0.95), (1, 0.1)):
        write_readings(paths.timing_dir("train", 0, 1), node=node, **cpus(busy, 0.01))
    found = finding(report_on(paths), "data-wait")
    assert "cores of gpu-02 are 10 % busy" in found.evidence[-1]


SOUND = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005, "num_ranks": 4}


@pytest.mark.parametrize(("data_wait_s", "severity"), [(0.06, "medium"), (0.6, "high")])
def test_data_wait_is_judged_by_the_bands_of_xprof(report_of, data_wait_s, severity):
    found = finding(report_of(**{**SOUND, "data_wait_s": data_wait_s}), "data-wait")
    assert found.severity == severity
    assert "XProf" in found.source
    assert found.ceiling.startswith("no data wait: at most 1.")
