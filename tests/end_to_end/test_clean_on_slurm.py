"""Clean, and a run folder that was removed while its jobs live, on a real Slurm."""

from __future__ import annotations

import shutil

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver, wait_for

pytestmark = pytest.mark.cluster

SPEC = """
name: cleaned
cluster: auto
stages:
  a: {run: "user_stages:work", config: {hang: [0]}}
  b: {run: "user_stages:work", after: a}
"""


@pytest.fixture
def going(on_slurm: Driver) -> Driver:
    """A driver whose run has a job that hangs, and one that waits for it."""
    on_slurm.write("spec.yaml", SPEC)
    return on_slurm


def test_a_run_is_cleaned_once_its_jobs_have_ended(going: Driver, cluster: Cluster) -> None:
    run_dir = going.submit("spec.yaml")
    wait_for((run_dir / "tasks/a/s00000.a0001/hangs-0").exists, "the first attempt at work")
    refused = going.run("clean", str(run_dir), "--all", "--yes", check=2).stdout
    assert "has jobs that have not ended: " in refused
    assert "(RUNNING)" in refused
    assert "(PENDING)" in refused
    assert (run_dir / "ledger").is_dir()
    going.run("cancel", str(run_dir), "--yes")
    wait_for(lambda: not cluster.squeue(), "an empty queue")
    assert "the whole run" in going.run("clean", str(run_dir), "--all", "--yes").stdout
    assert not run_dir.exists()


def test_jobs_of_a_removed_run_are_named_and_ended(going: Driver, cluster: Cluster) -> None:
    run_dir = going.submit("spec.yaml")
    wait_for((run_dir / "tasks/a/s00000.a0001/hangs-0").exists, "the first attempt at work")
    shutil.rmtree(run_dir, ignore_errors=True)
    (run_dir / "run.json").unlink(missing_ok=True)
    named = going.run("runs", check=None)
    assert f"{run_dir} does not exist" in named.stdout + named.stderr
    assert "(a, RUNNING)" in named.stdout + named.stderr
    assert "(b, PENDING)" in named.stdout + named.stderr
    assert "cancelled jobs " in going.run("cancel", str(run_dir), "--yes").stdout
    wait_for(lambda: not cluster.squeue(), "an empty queue")
