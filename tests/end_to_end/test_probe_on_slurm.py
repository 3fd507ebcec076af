"""`slurm-jobs probe` on a real Slurm: two nodes, one node, a partition that has only one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver, words_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SPEC = """
name: probed
cluster: auto
stages:
  work:
    shell: "true"
    resources: {cpus_per_task: 2, mem_gb: 2, slurm: {partition: PARTITION}}
"""
SMALL = ("--file-mb", "8")


def _spec(driver: Driver, partition: str) -> str:
    driver.write("spec.yaml", SPEC.replace("PARTITION", partition))
    return "spec.yaml"


def test_two_nodes_are_measured_with_the_network_between_them(on_slurm: Driver) -> None:
    values = on_slurm.json("probe", _spec(on_slurm, "cpu"), *SMALL)
    assert values["status"] == "completed"
    by_name = {probe["node"]: probe for probe in values["nodes"]}
    assert set(by_name) == {"cpu1", "cpu2"}  # two nodes, without being asked for
    for name, other in (("cpu1", "cpu2"), ("cpu2", "cpu1")):
        probe = by_name[name]
        assert probe["numbers"]["network_bytes_per_s"] > 1e6
        assert 0 < probe["numbers"]["network_latency_s"] < 1
        assert [talk["with"] for talk in probe["details"]["network"]] == [other]
        assert probe["num_asked_cores"] == 2
        assert probe["numbers"]["matmul_fp32_flops_per_s"] > 1e8
        assert "no GPU" in probe["reasons"]["gpu"]
    run_dir = Path(values["run_dir"])
    assert words_of(on_slurm.status(run_dir)) == {"probe": "completed"}
    assert "not measured" in on_slurm.run("logs", str(run_dir), "probe").stdout
    listed = on_slurm.json("runs", "--dir", str(run_dir.parent))
    assert [run["run_id"] for run in listed["runs"]] == [run_dir.name]
    assert listed["unreadable"] == {}
    (scratch,) = run_dir.parent.glob(".probes-*/.scratch")
    assert list(scratch.iterdir()) == []


def test_a_partition_with_one_node_is_measured_without_the_network(
    on_slurm: Driver, cluster: Cluster
) -> None:
    cluster.create_partition("lonely", "cpu2")
    try:
        values = on_slurm.json("probe", _spec(on_slurm, "lonely"), *SMALL)
        refused = on_slurm.run("probe", "spec.yaml", "--nodes", "2", check=2)
    finally:
        cluster.delete_partition("lonely")
    (probe,) = values["nodes"]
    assert (probe["node"], probe["num_asked_cores"]) == ("cpu2", 2)
    assert "--nodes 2" in probe["reasons"]["network"]
    assert "2 nodes: more than the 1" in refused.stderr


def test_nodes_that_are_named_are_the_ones_that_are_measured(on_slurm: Driver) -> None:
    spec = _spec(on_slurm, "gpu")
    gpus = ("--set", "stages.work.resources.gpus_per_node=1")
    values = on_slurm.json("probe", spec, *SMALL, *gpus, "--nodelist", "a2")
    (probe,) = values["nodes"]
    assert probe["node"] == "a2"
    assert "host_to_device" in probe["reasons"]  # the GPUs of the test cluster are not there
