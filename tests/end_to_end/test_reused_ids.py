"""Slurm that gives job ids again: its controller lost its state, or the ids are used up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, wait_until
from tests.end_to_end.driver import COMMAND, Driver, stage_of, wait_for, words_of

pytestmark = [pytest.mark.cluster]

FIRST_ID = 100
SPEC = """\
name: again
cluster: auto
stages:
  fan:
    shell: >-
      echo $SLURM_JOBS_SLICE >> log; while ! test -e go; do sleep 0.1; done; test ! -e fails
    array: {num_slices: 3}
  middle: {after: fan, shell: "echo middle >> log"}
  total: {after: middle, shell: "echo total >> log"}
"""
AT_WORK = ["0", "1", "2"]
DONE = ["middle", "total"]
DIES_AT_SECOND = """\
#!/bin/bash
test $1 = --version && exec /usr/bin/sbatch --version
test -e first && kill -9 $PPID && exit 1
touch first
exec /usr/bin/sbatch "$@"
"""
"""In place of sbatch: kills the command, its parent, instead of the second submission."""


@pytest.fixture
def forgetful(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whose other tests never meet the ids of this one."""
    next_id = cluster.next_job_id()
    cluster.forget_jobs(first_id=FIRST_ID)
    yield cluster
    cluster.cancel_all()
    cluster.forget_jobs(first_id=max(next_id, 1000))


def _log(driver: Driver) -> list[str]:
    path = driver.folder / "log"
    return sorted(path.read_text().split()) if path.exists() else []


def _ids(driver: Driver, run_dir: Path, stage: str) -> set[str]:
    slices = stage_of(driver.status(run_dir), stage)["slices"]
    return {part["job_id"] for part in slices}


def test_after_a_loss_of_state_two_resumes_run_each_task_once(
    on_slurm: Driver, forgetful: Cluster
) -> None:
    run_dir = on_slurm.submit_text(SPEC)
    wait_for(lambda: _log(on_slurm) == AT_WORK, "three tasks at work")
    lost = _ids(on_slurm, run_dir, "fan")
    forgetful.forget_jobs(first_id=FIRST_ID)
    on_slurm.wait(run_dir)

    on_slurm.json("resume", str(run_dir))
    assert _ids(on_slurm, run_dir, "fan") == lost  # the ids have come again
    wait_for(lambda: _log(on_slurm) == sorted(2 * AT_WORK), "three tasks at work again")
    resumed = on_slurm.json("resume", str(run_dir))
    assert (resumed["jobs"], resumed["cancelled"]) == ([], [])
    words = words_of(on_slurm.status(run_dir))
    assert words == {"fan": "running", "middle": "waiting", "total": "waiting"}
    on_slurm.write("go", "")
    assert "completed" in on_slurm.run("watch", str(run_dir)).stdout
    assert _log(on_slurm) == sorted([*2 * AT_WORK, *DONE])


def test_a_stage_is_not_running_because_another_has_the_id_that_it_had(
    on_slurm: Driver, forgetful: Cluster
) -> None:
    """A resume is killed after its first job, which has the id that `total` had before."""
    run_dir = on_slurm.submit_text(SPEC)
    wait_for(lambda: _log(on_slurm) == AT_WORK, "three tasks at work")
    (lost,) = _ids(on_slurm, run_dir, "total")
    forgetful.forget_jobs(first_id=int(lost))
    on_slurm.wait(run_dir)
    on_slurm.write("bin/sbatch", DIES_AT_SECOND).chmod(0o755)
    path = f"{on_slurm.folder}/bin:{forgetful.env()['PATH']}"
    doomed = replace(on_slurm, command=("env", f"PATH={path}", *COMMAND))
    doomed.run("resume", str(run_dir), check=-9)
    wait_for(lambda: _log(on_slurm) == sorted(2 * AT_WORK), "three tasks at work again")

    status = on_slurm.status(run_dir)
    assert {job_id.partition("_")[0] for job_id in _ids(on_slurm, run_dir, "fan")} == {lost}
    assert _ids(on_slurm, run_dir, "total") == {lost}
    assert words_of(status)["fan"] == "running"
    assert words_of(status)["total"] != "running"
    resumed = on_slurm.json("resume", str(run_dir))
    assert [job["stage"] for job in resumed["jobs"]] == ["middle", "total"]
    assert resumed["cancelled"] == []
    on_slurm.write("go", "")
    assert "completed" in on_slurm.run("watch", str(run_dir)).stdout
    assert _log(on_slurm) == sorted([*2 * AT_WORK, *DONE])


def test_a_lost_job_does_not_live_because_an_array_element_has_its_id(
    on_slurm: Driver, forgetful: Cluster
) -> None:
    run_dir = on_slurm.submit_text(SPEC)
    wait_for(lambda: _log(on_slurm) == AT_WORK, "three tasks at work")
    (lost,) = _ids(on_slurm, run_dir, "total")
    forgetful.forget_jobs(first_id=int(lost) - 1)
    array = forgetful.submit("sleep 300", "--array=0-1", cwd=on_slurm.folder)
    forgetful.wait_for_state(f"{array}_0", "RUNNING")
    assert forgetful.job_info(lost)["ArrayJobId"] == str(array)

    status = on_slurm.status(run_dir)
    assert status["problems"] == []
    assert words_of(status)["total"] not in {"running", "waiting"}
    on_slurm.write("go", "")
    resumed = on_slurm.json("resume", str(run_dir))
    assert [job["stage"] for job in resumed["jobs"]] == ["fan", "middle", "total"]
    assert resumed["cancelled"] == []
    assert "completed" in on_slurm.run("watch", str(run_dir)).stdout
    assert _log(on_slurm) == sorted([*2 * AT_WORK, *DONE])


@pytest.mark.slow
def test_ids_that_wrap_around_cancel_nothing_and_run_nothing_twice(
    on_slurm: Driver, forgetful: Cluster
) -> None:
    forgetful.forget_jobs(first_id=120, last_id=126, min_job_age_s=2)
    on_slurm.write("spec.yaml", SPEC)
    on_slurm.write("fails", "")
    run_dir = on_slurm.submit("spec.yaml")
    used: list[str] = []
    for number in (1, 2, 3):
        wait_for(lambda: len(_log(on_slurm)) == 3 * number, "three tasks at work")  # noqa: B023
        stages = on_slurm.status(run_dir)["stages"]
        used += [stage["slices"][0]["job_id"].partition("_")[0] for stage in stages]
        resumed = on_slurm.json("resume", str(run_dir))
        assert (resumed["jobs"], resumed["cancelled"]) == ([], [])
        on_slurm.write("go", "")
        on_slurm.run("watch", str(run_dir), check=1)
        _await_oblivion(forgetful)
        (on_slurm.folder / "go").unlink()
        assert on_slurm.json("resume", str(run_dir))["cancelled"] == []
    assert len(set(used)) < len(used)  # they have come again
    wait_for(lambda: len(_log(on_slurm)) == 12, "three tasks at work")
    (on_slurm.folder / "fails").unlink()
    on_slurm.write("go", "")
    assert "completed" in on_slurm.run("watch", str(run_dir)).stdout
    assert _log(on_slurm) == sorted([*4 * AT_WORK, *DONE])


def _await_oblivion(cluster: Cluster) -> None:
    """Wait until the controller has forgotten the jobs that have ended."""

    def knows_none() -> bool:
        done = cluster.run_as_user(["squeue", "--noheader", "--states=all"])
        return not done.stdout.strip()

    wait_until(knows_none, "the controller to forget its jobs", timeout_s=90)
