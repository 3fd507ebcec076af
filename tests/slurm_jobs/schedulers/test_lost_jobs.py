"""Jobs whose run folder does not exist are found and named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.cli.runs.lost_runs import lost
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm

__all__ = ["command", "lost"]


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", str(tmp_path / "runs"))
    (tmp_path / "runs").mkdir()
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("scancel", "")
    return fake


def test_runs_names_them_and_the_command_that_ends_them(lost: Path, command: Command) -> None:
    out = command("runs").out
    assert f"{lost} does not exist" in out
    assert "12 (train, RUNNING), 13 (work, PENDING). To end them: " in out
    assert out.count("does not exist") == 1
    found = json.loads(command("runs", "--json").out)["lost_jobs"]
    assert [(job["job_id"], job["stage"]) for job in found] == [("12", "train"), ("13", "work")]


def test_runs_names_them_if_the_folder_of_all_runs_is_gone(lost: Path, command: Command) -> None:
    shutil.rmtree(lost.parent)
    assert "12 (train, RUNNING), 13 (work, PENDING)" in command("runs", code=2).err
