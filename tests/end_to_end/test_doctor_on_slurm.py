"""`slurm-jobs doctor` on a real Slurm: nodes, a drill, a job that waits, a dead daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SPEC = """
name: looked-at
cluster: auto
stages:
  work:
    shell: "true"
    python: PYTHON
    resources: {nodes: 2, tasks_per_node: 2, mem_gb: 2, slurm: {partition: PARTITION}}
"""


BARE_PYTHON = os.path.realpath(sys.executable)
"""It has nothing installed, so that no PyTorch is loaded."""


def _spec(driver: Driver, partition: str, python: str = BARE_PYTHON) -> str:
    driver.write("spec.yaml", SPEC.replace("PARTITION", partition).replace("PYTHON", python))
    return "spec.yaml"


def _named(values: Any, name: str) -> Any:
    return next(check for check in values["checks"] if check["name"] == name)


def test_two_nodes_are_checked_and_the_drill_is_requeued_by_slurm_itself(
    on_slurm: Driver, cluster: Cluster
) -> None:
    values = on_slurm.json("doctor", _spec(on_slurm, "cpu"), "--drill")
    for name in ("controller-clock", "accounting", "requeue", "partitions", "runs_dir-shared"):
        assert _named(values, name)["standing"] == "ok"
    for name in ("scontrol", "srun", "node-signal", "node-runs_dir"):
        check = _named(values, name)
        assert (check["standing"], check["where"]) == ("ok", "cpu1, cpu2"), check
    # Clocks that are known to within 0.1 s and 1 s of the login node's have a check each.
    clocks = [check for check in values["checks"] if check["name"] == "clock"]
    assert {check["standing"] for check in clocks} == {"ok"}, clocks
    assert sorted(", ".join(check["where"] for check in clocks).split(", ")) == ["cpu1", "cpu2"]
    assert _named(values, "node-clocks")["where"] == "cpu2"
    assert _named(values, "node-files")["standing"] == "ok"
    drill = _named(values, "drill")
    assert drill["standing"] == "ok", drill
    assert "SIGUSR2 came" in drill["told"]
    assert "by each of 2 ranks" in drill["told"]
    assert cluster.squeue() == []


@pytest.mark.parametrize(
    ("interface", "standing", "words"),
    [
        ("lo", "ok", "an all-reduce over gloo works between the nodes over lo"),
        ("none0", "warning", "an all-reduce over gloo failed between the nodes over none0: "),
    ],
)
def test_two_nodes_reduce_over_the_interface_that_the_spec_names(
    on_slurm: Driver, interface: str, standing: str, words: str
) -> None:
    _spec(on_slurm, "cpu", python=sys.executable)  # it has PyTorch
    named = ("--set", f"environment.GLOO_SOCKET_IFNAME={interface}")
    check = _named(on_slurm.json("doctor", "spec.yaml", *named), "node-gloo")
    assert check["standing"] == standing, check
    assert check["told"].startswith(words)
    assert ("GLOO_SOCKET_IFNAME" in check["remedy"]) == (standing != "ok")


def test_preemption_without_grace_time_names_the_setting_that_loses_less(
    on_slurm: Driver,
) -> None:
    values = on_slurm.json("doctor", _spec(on_slurm, "low"), "--no-nodes")
    told = _named(values, "preemption")
    assert "jobs in low may be preempted" in told["told"]
    assert "checkpoint.every_min" in told["remedy"]


def test_a_job_that_slurm_refuses_is_a_problem_in_slurms_own_words(
    on_slurm: Driver, cluster: Cluster
) -> None:
    _spec(on_slurm, "cpu")
    none = ("--set", "stages.work.resources.slurm.reservation=none")
    nodes = _named(on_slurm.json("doctor", "spec.yaml", *none, check=1), "nodes")
    assert nodes["standing"] == "problem"
    assert "Requested reservation is invalid" in nodes["told"]
    never = ("--set", "stages.work.resources.cpus_per_task=999")
    nodes = _named(on_slurm.json("doctor", "spec.yaml", *never, check=1), "nodes")
    assert "stages.work.resources.cpus_per_task" in nodes["told"]
    assert cluster.squeue() == []


def test_ctrl_c_leaves_no_job_in_the_queue(on_slurm: Driver, cluster: Cluster) -> None:
    words = [*on_slurm.command, "doctor", _spec(on_slurm, "cpu"), "--no-nodes", "--drill"]
    process = subprocess.Popen(
        cluster.as_user(words),
        env=cluster.env(),
        cwd=on_slurm.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(cluster.squeue, "a job in the queue")  # the submit may not have ended yet
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "its jobs are cancelled" in errors
    wait_for(lambda: not cluster.squeue(), "an empty queue")


def test_a_job_that_waits_too_long_is_cancelled_and_is_no_problem(
    on_slurm: Driver, cluster: Cluster
) -> None:
    _spec(on_slurm, "cpu")
    later = ("--set", "stages.work.resources.slurm.begin=now+1hour")
    values = on_slurm.json("doctor", "spec.yaml", "--wait", "1", *later)
    nodes = _named(values, "nodes")
    assert nodes["standing"] == "unknown"
    assert "after 1 min it was cancelled" in nodes["told"]
    assert cluster.squeue() == []


def test_a_missing_controller_is_reported_within_a_minute(
    on_slurm: Driver, cluster: Cluster
) -> None:
    _spec(on_slurm, "cpu")
    cluster.stop_daemon("slurmctld")
    try:
        values = on_slurm.json("doctor", "spec.yaml", check=3)
    finally:
        cluster.start_daemon("slurmctld")
    assert values["unreachable"] is True
    assert _named(values, "controller")["standing"] == "problem"
    assert _named(values, "nodes")["standing"] == "unknown"
    assert _named(values, "hard-links")["standing"] == "ok"
