"""What killed test runs left in /var/tmp is cleared away before a cluster starts; nothing else."""

import os
from pathlib import Path

import pytest

from tests import conftest
from tests.cluster.errors import ClusterError
from tests.cluster.processes import identify

UNUSED_PID = 4194305
"""Above the largest that Linux gives."""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of /var/tmp, in a process that is none of several."""
    monkeypatch.setattr(conftest, "_FOLDERS", tmp_path)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return tmp_path


def leave(folders: Path, owner: str) -> Path:
    folder = folders / f"slurm-jobs-pytest-{owner}"
    (folder / "home").mkdir(parents=True)
    return folder


def own() -> str:
    found = identify(os.getpid())
    assert found is not None
    return f"{found.pid}-{found.start_ticks}"


def test_what_no_living_run_owns_goes_and_what_one_does_stays(folders: Path) -> None:
    gone = [leave(folders, f"{UNUSED_PID}"), leave(folders, f"{UNUSED_PID}-17")]
    gone.append(leave(folders, f"{os.getpid()}-1"))  # an earlier process had the same pid
    stays = [leave(folders, own()), leave(folders, f"{os.getpid()}"), leave(folders, "by-hand")]
    conftest._clear_away_what_killed_runs_left()
    assert [folder.exists() for folder in gone] == [False] * 3
    assert [folder.exists() for folder in stays] == [True] * 3


def test_a_link_is_left_alone_and_so_is_what_it_leads_to(folders: Path) -> None:
    thesis = folders / "thesis"
    thesis.mkdir()
    (thesis / "chapter-1").touch()
    link = folders / f"slurm-jobs-pytest-{UNUSED_PID}"
    link.symlink_to(thesis)
    (folders / f"slurm-jobs-pytest-{UNUSED_PID + 1}").touch()  # a file is no cluster's folder
    conftest._clear_away_what_killed_runs_left()
    assert link.is_symlink()
    assert (thesis / "chapter-1").exists()


def test_another_users_folder_is_left_alone(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = leave(folders, f"{UNUSED_PID}")
    monkeypatch.setattr("os.geteuid", lambda: folder.stat().st_uid + 1)
    conftest._clear_away_what_killed_runs_left()
    assert folder.exists()


def test_a_second_cluster_of_one_test_run_is_refused(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes are children of the one that deals the files out."""
    leave(folders, own())
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    with pytest.raises(ClusterError, match="two processes of one test run"):
        conftest._clear_away_what_killed_runs_left()
