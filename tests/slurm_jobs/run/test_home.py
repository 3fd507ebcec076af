"""squeue, sacct, scancel and scontrol are programs of the test's own, of a cluster called `b`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError, SchedulerError
from slurm_jobs.commands.cancel import cancel
from slurm_jobs.commands.resume import resume
from slurm_jobs.run.observe import accounting_of, status_of
from slurm_jobs.run_folder.ledger import read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.run.fabricate import end, make_run, submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import (
    FakeSlurm,
    account_row,
    make_fake_slurm,
    queue_row,
)

OWN_UID = os.getuid()
OTHER_UID = OWN_UID + 1
ACTS: list[Callable[[Path], object]] = [resume, cancel]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("scontrol", "Configuration data as of now\nClusterName             = b\n")
    fake.says("scancel", "")
    return fake


def run_of(tmp_path: Path, cluster_name: str | None, uid: int | None = OWN_UID) -> RunPaths:
    """A run with one job, 1; without a name and a uid as older versions wrote it."""
    values = {"cluster_name": cluster_name, "uid": uid}
    return submitted_run(tmp_path / "r", 1, **{k: v for k, v in values.items() if v is not None})


@pytest.mark.parametrize("act", ACTS)
def test_on_another_cluster_nothing_is_submitted_or_ended(
    slurm: FakeSlurm, tmp_path: Path, act: Callable[[Path], object]
) -> None:
    """Its squeue answers as ever, with nothing, while the job runs on the first cluster."""
    paths = run_of(tmp_path, "a")
    before = read_ledger(paths.ledger_dir)
    with pytest.raises(InputError, match="run the command on a login node of `a`"):
        act(paths.run_dir)
    assert read_ledger(paths.ledger_dir) == before
    assert slurm.calls("scancel") == []


@pytest.mark.parametrize("act", ACTS)
def test_another_users_run_is_left_to_its_owner(
    slurm: FakeSlurm, tmp_path: Path, act: Callable[[Path], object]
) -> None:
    paths = run_of(tmp_path, "b", OTHER_UID)
    with pytest.raises(InputError, match=f"ada's .uid {OTHER_UID}.*run the command as ada"):
        act(paths.run_dir)
    assert slurm.calls("scancel") == []


@pytest.mark.parametrize("scheduler", ["local", "slurm"])
@pytest.mark.parametrize("act", ACTS)
def test_a_folder_of_anothers_is_not_acted_on_whatever_it_says_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object], scheduler: str
) -> None:
    looking_uid = tmp_path.stat().st_uid + 1
    paths = make_run(tmp_path / "r", {"a": 1}, scheduler=scheduler, uid=looking_uid)
    monkeypatch.setattr("os.getuid", lambda: looking_uid)
    monkeypatch.setattr("slurm_jobs.run.home._has_one_owner_for_all", lambda _folder: False)
    with pytest.raises(InputError, match=rf"is uid {looking_uid - 1}'s, .* would run as you"):
        act(paths.run_dir)


@pytest.mark.parametrize("act", ACTS)
def test_without_the_name_of_the_cluster_from_slurm_no_command_acts(
    slurm: FakeSlurm, tmp_path: Path, act: Callable[[Path], object]
) -> None:
    slurm.says("scontrol", "", errors="Unable to contact slurm controller", exit_code=1)
    with pytest.raises(SchedulerError, match="scontrol"):
        act(run_of(tmp_path, "a").run_dir)


def test_a_run_is_cancelled_on_its_own_cluster_or_if_it_names_none(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    slurm.says("squeue", queue_row("1", "RUNNING"))
    for folder, cluster_name, uid in (("new", "b", OWN_UID), ("old", None, None)):
        paths = run_of(tmp_path / folder, cluster_name, uid)
        assert cancel(paths.run_dir) == ["1"]
    assert len(slurm.calls("scontrol")) == 1  # of the older run there is nothing to compare


def test_a_look_from_another_cluster_says_where_to_look_instead(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    paths = run_of(tmp_path, "a")
    slurm.says("squeue", queue_row("1", "RUNNING", name="a-strangers-job-of-that-id"))
    status = status_of(paths.run_dir, fresh=False)
    assert (status.status, status.knows_the_living) == ("unknown", False)
    assert "look on a login node of `a`" in status.problems[0]
    assert "cluster `a` could not be queried" in status.stage("a").slices[0].reason
    assert not paths.scheduler_answer.exists()  # a look from there is not to be told this


def test_a_look_asks_for_the_cluster_name_only_if_it_knows_no_job(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    paths = run_of(tmp_path, "b")
    slurm.says("squeue", queue_row("1", "RUNNING"))
    status_of(paths.run_dir)
    slurm.says("squeue", "")
    slurm.says("sacct", account_row("1", "FAILED"))
    status_of(paths.run_dir)
    assert slurm.calls("scontrol") == []
    slurm.says("sacct", "")
    status = status_of(paths.run_dir)
    assert status.knows_the_living  # this is its cluster, and the job is gone
    assert "the scheduler does not know it" in status.stage("a").slices[0].reason
    assert len(slurm.calls("scontrol")) == 1
    end(paths, "a", [0], "failed", reason="it broke")
    assert status_of(paths.run_dir).status == "failed"
    assert len(slurm.calls("scontrol")) == 1


def test_nothing_counts_as_gone_if_no_controller_names_the_cluster(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    slurm.says("scontrol", "", exit_code=1)
    status = status_of(run_of(tmp_path, "b").run_dir)
    assert not status.knows_the_living
    assert status.problems[0].startswith("scontrol: ")


def test_jobs_of_the_owner_are_queried_for_every_user(slurm: FakeSlurm, tmp_path: Path) -> None:
    """`squeue --me` shows root no jobs of other users."""
    paths = run_of(tmp_path, "b", OTHER_UID)
    slurm.says("squeue", queue_row("1", "RUNNING"))
    assert status_of(paths.run_dir).status == "running"
    assert f"--user={OTHER_UID}" in slurm.calls("squeue")[0].split()
    older = run_of(tmp_path / "older", None, None)
    status_of(older.run_dir)
    assert f"--user={OWN_UID}" in slurm.calls("squeue")[1].split()
    accounting_of(paths.run_dir)


def test_jobs_that_slurm_shows_to_their_owner_alone_are_not_taken_for_gone(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: 4242)
    paths = run_of(tmp_path, "b", 4343)
    slurm.says("scontrol", "ClusterName = b\nPrivateData = accounts,jobs\n")
    status = status_of(paths.run_dir)
    assert not status.knows_the_living
    assert "those of r are ada's" in status.problems[0]
