"""Runs at a site whose squeue is behind, on a real Slurm; see `stale_squeue`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver, stage_of, wait_for, words_of
from tests.end_to_end.stale_squeue import with_stale_squeue

pytestmark = [pytest.mark.cluster]

SPEC = """\
name: behind
cluster: auto
stages:
  fan:
    shell: >-
      echo $SLURM_JOBS_SLICE >> log; while ! test -e go; do sleep 0.1; done; test ! -e fails
    array: {num_slices: 3}
    resources: {timeout_min: 30}
  total: {after: fan, shell: "echo total >> log"}
"""


LATER = """\
name: later
cluster: auto
stages: {a: {shell: "true", resources: {slurm: {begin: now+1hour}}}}
"""


def _log(driver: Driver) -> list[str]:
    path = driver.folder / "log"
    return sorted(path.read_text().split()) if path.exists() else []


@pytest.mark.parametrize("accounts", [True, False])
def test_a_run_that_squeue_never_lists_is_left_alone_and_ends(
    on_slurm: Driver, *, accounts: bool
) -> None:
    driver = with_stale_squeue(on_slurm, accounts=accounts).driver
    run_dir = driver.submit_text(SPEC)
    wait_for(lambda: _log(driver) == ["0", "1", "2"], "three tasks at work")
    status = driver.status(run_dir)
    assert words_of(status) == {"fan": "running", "total": "waiting"}
    assert {part["source"] for part in stage_of(status, "fan")["slices"]} == {"scontrol"}
    resumed = driver.json("resume", str(run_dir))
    assert (resumed["jobs"], resumed["cancelled"]) == ([], [])
    driver.write("go", "")
    assert "completed" in driver.run("watch", str(run_dir)).stdout
    assert _log(driver) == ["0", "1", "2", "total"]


@pytest.mark.parametrize("accounts", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_failed_unseen_by_squeue_runs_again_once(on_slurm: Driver, *, accounts: bool) -> None:
    driver = with_stale_squeue(on_slurm, accounts=accounts).driver
    driver.write("spec.yaml", SPEC)
    driver.write("go", "")
    failing = driver.write("fails", "")
    run_dir = driver.submit("spec.yaml")
    assert "failed" in driver.run("watch", str(run_dir), check=1).stdout
    failing.unlink()
    assert [job["stage"] for job in driver.json("resume", str(run_dir))["jobs"]] == ["fan", "total"]
    assert driver.json("resume", str(run_dir))["jobs"] == []
    driver.run("watch", str(run_dir))
    assert _log(driver) == ["0", "0", "1", "1", "2", "2", "total"]


def test_while_the_controller_is_silent_a_fresh_run_is_not_replaced(
    on_slurm: Driver, cluster: Cluster
) -> None:
    driver = with_stale_squeue(on_slurm, accounts=False).driver
    run_dir = driver.submit_text(SPEC)
    wait_for(lambda: _log(driver) == ["0", "1", "2"], "three tasks at work")
    cluster.stop_daemon("slurmctld")
    status = driver.status(run_dir)
    assert words_of(status) == {"fan": "running", "total": "waiting"}
    assert "no source of Slurm says yet" in stage_of(status, "total")["slices"][0]["reason"]
    assert "scontrol" in driver.run("resume", str(run_dir), check=3).stderr
    assert "scontrol" in driver.run("cancel", str(run_dir), "--yes", check=3).stderr
    cluster.start_daemon("slurmctld")
    assert driver.json("resume", str(run_dir))["jobs"] == []
    driver.write("go", "")
    driver.run("watch", str(run_dir))
    assert _log(driver) == ["0", "1", "2", "total"]


def test_a_stale_squeue_does_not_make_cancel_end_another_job(
    on_slurm: Driver, cluster: Cluster
) -> None:
    """squeue still lists the run's job; by now its id belongs to another job of the user."""
    stale = with_stale_squeue(on_slurm, accounts=True)
    driver = stale.driver
    cluster.forget_jobs(first_id=500)
    run_dir = driver.submit_text(LATER)
    job_id = stage_of(driver.status(run_dir), "a")["slices"][0]["job_id"]
    stale.refresh()
    cluster.forget_jobs(first_id=int(job_id))
    other = cluster.submit("sleep 60", cwd=driver.folder)
    assert str(other) == job_id
    driver.run("cancel", str(run_dir), "--yes", check=None)
    driver.run("resume", str(run_dir), "--again", "a", check=None)
    assert cluster.job_state(other) in {"PENDING", "RUNNING"}


@pytest.mark.slow
@pytest.mark.parametrize("accounts", [True, False])
@pytest.mark.parametrize("behind_s", [10, 30, 75, 300])
def test_with_a_cached_squeue_each_task_runs_once(
    on_slurm: Driver, behind_s: int, *, accounts: bool
) -> None:
    stale = with_stale_squeue(on_slurm, accounts=accounts)
    driver = stale.driver
    driver.write("spec.yaml", SPEC)
    with stale.refreshed_every(behind_s):
        run_dir = driver.submit("spec.yaml")
        wait_for(lambda: _log(driver) == ["0", "1", "2"], "three tasks at work")
        end_s = time.monotonic() + behind_s + 15
        while time.monotonic() < end_s:
            _require_untouched(driver, run_dir)
            time.sleep(5)
        driver.write("go", "")
        assert "completed" in driver.run("watch", str(run_dir)).stdout
        assert driver.json("resume", str(run_dir))["jobs"] == []
    assert _log(driver) == ["0", "1", "2", "total"]


def _require_untouched(driver: Driver, run_dir: Path) -> None:
    assert words_of(driver.status(run_dir)) == {"fan": "running", "total": "waiting"}
    resumed = driver.json("resume", str(run_dir))
    assert (resumed["jobs"], resumed["cancelled"]) == ([], [])
