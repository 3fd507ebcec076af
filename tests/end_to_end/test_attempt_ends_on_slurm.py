"""Why attempts ended, on a real Slurm: each way in which a job stops, told apart by `status`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver, stage_of, wait_for

pytestmark = pytest.mark.cluster

STAGE = """
  {name}:
    run: user_stages:{function}
    config: {{until: 100000, hang: [0]}}
    resources:
      timeout_min: 30
      signal_lead_s: 20
      mem_gb: 0.2
      slurm: {{partition: {partition}, nodelist: {node}}}
"""
ACCOUNTED_S = 6.0
"""Slurm accounts a start up to 5 s late, and one that has ended before without its time."""
SAVING, HANGING = "until_stopped", "work"
STAGES = {
    "preempted": (SAVING, "low", "cpu1"),
    "killed": (HANGING, "low", "v1"),
    "requeued": (SAVING, "cpu", "cpu2"),
    "scancelled": (SAVING, "cpu", "cpu2"),
    "cancelled": (SAVING, "cpu", "cpu2"),
    "signalled": (SAVING, "cpu", "cpu2"),
    "lost": (SAVING, "gpu", "v2"),
}


def first_attempts(driver: Driver, run_dir: Path, name: str) -> list[dict[str, Any]]:
    """Attempts of a stage whose ends both sources have."""
    status = driver.json("status", str(run_dir), "--fresh", "--stage", name, check=None)
    attempts: list[dict[str, Any]] = stage_of(status, name)["attempts"]
    return [a for a in attempts if a["end_unix_s"] is not None and a["state"]]


@pytest.mark.slow
def test_each_way_in_which_a_job_stops_has_its_own_name(on_slurm: Driver, cluster: Cluster) -> None:
    stages = [
        STAGE.format(name=name, function=function, partition=partition, node=node)
        for name, (function, partition, node) in STAGES.items()
    ]
    run_dir = on_slurm.submit_stages("" + "".join(stages))

    def job_of(name: str) -> str:
        at_work = "counting" if STAGES[name][0] == SAVING else "hangs-0"
        task_dir = run_dir / "tasks" / name / "s00000.a0001"
        wait_for((task_dir / at_work).exists, f"{name} at work")
        record = json.loads((run_dir / "attempts" / name / "s00000.a0001.json").read_text())
        return str(record["job_id"])

    jobs = {name: job_of(name) for name in STAGES}
    time.sleep(ACCOUNTED_S)
    for node in ("cpu1", "v1"):
        options = [f"--nodelist={node}", "--partition=high", "--exclusive", "--mem=1G"]
        cluster.submit("sleep 5", *options, cwd=on_slurm.folder)
    cluster.run_as_user(["scontrol", "requeue", jobs["requeued"]])
    cluster.run_as_user(["scancel", jobs["scancelled"]])
    cluster.run_as_user(["scancel", "--batch", "--signal=USR2", jobs["signalled"]])
    cluster.set_node_down("v2")
    on_slurm.run("cancel", str(run_dir), "--stage", "cancelled", "--yes")
    ends = {}
    for name in STAGES:
        first = wait_for(
            lambda name=name: first_attempts(on_slurm, run_dir, name), f"end of {name}"
        )
        ends[name] = (first[0]["ending"], first[0]["state"], first[0]["has_stopped"])
    assert ends == {
        "preempted": ("preempted", "REQUEUED", True),  # after its stop it requeued its job itself
        "killed": ("preempted", "PREEMPTED", False),
        "requeued": ("requeued", "REQUEUED", True),
        "scancelled": ("cancelled", "CANCELLED", True),
        "cancelled": ("cancelled", "CANCELLED", True),
        "signalled": ("stop signal", "REQUEUED", True),
        "lost": ("node failure", "NODE_FAIL", True),
    }
    (ours,) = first_attempts(on_slurm, run_dir, "cancelled")
    (other,) = first_attempts(on_slurm, run_dir, "scancelled")
    assert "`slurm-jobs cancel`" in ours["reason"]
    assert "scancel" in other["reason"]
    on_slurm.run("cancel", str(run_dir), "--yes", check=None)
    cluster.heal_daemons()


@pytest.mark.slow
def test_a_preemption_shortly_before_the_time_limit_has_its_name(
    on_slurm: Driver, cluster: Cluster
) -> None:
    stage = STAGE.format(name="a", function=SAVING, partition="low", node="cpu1")
    stage = stage.replace("timeout_min: 30", "timeout_min: 2").replace("lead_s: 20", "lead_s: 40")
    run_dir = on_slurm.submit_stages(f"{stage}")
    wait_for((run_dir / "tasks/a/s00000.a0001/counting").exists, "work")
    options = ["--nodelist=cpu1", "--partition=high", "--exclusive", "--mem=1G"]
    cluster.submit("sleep 5", *options, cwd=on_slurm.folder)
    (first, *_) = wait_for(lambda: first_attempts(on_slurm, run_dir, "a"), "its end")
    assert (first["ending"], first["has_stopped"]) == ("preempted", True)
    on_slurm.run("cancel", str(run_dir), "--yes", check=None)
