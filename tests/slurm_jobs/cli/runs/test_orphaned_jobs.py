"""Jobs whose run folder was removed; squeue is a program of the test's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.run.fabricate import submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm, queue_row

RUN = "shapes-20261101-101010-abcd"


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", str(tmp_path / "runs"))
    (tmp_path / "runs").mkdir()
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("scancel", "")
    return fake


def row(run_dir: Path, job_id: str, stage: str, state: str = "RUNNING", token: str = "ab12") -> str:
    command = f"{run_dir}/jobs/{token}/submission.sh"
    return queue_row(job_id, state, name=f"shapes.{stage}.{token}", command=command)


@pytest.fixture
def lost(tmp_path: Path, slurm: FakeSlurm) -> Path:
    """A run without a folder, of which a job runs and an array waits; other jobs are left alone."""
    run_dir = tmp_path / "runs" / RUN
    there = submitted_run(tmp_path / "runs/shapes-20261101-101010-0000", 1).run_dir
    slurm.says(
        "squeue",
        row(run_dir, "12", "train")
        + row(run_dir, "13_[0-3]", "work", "PENDING", "cd34")
        + row(run_dir, "11", "render", "COMPLETED", "ef56")
        + row(there, "9", "train", token="gh78")
        + queue_row("8", "RUNNING", name="a-strangers", command="/home/ada/jobs/x/job.sh"),
    )
    return run_dir


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


@pytest.mark.parametrize("has_rest", [False, True])
def test_cancel_ends_them_once_it_may(
    lost: Path, command: Command, slurm: FakeSlurm, *, has_rest: bool
) -> None:
    if has_rest:  # a job has written into the folder again
        (lost / "logs/train").mkdir(parents=True)
    refused = command("cancel", lost, code=2)
    assert "there is no terminal; add --yes" in refused.err
    assert slurm.calls("scancel") == []
    out = command("cancel", lost, "--yes", code=0).out
    assert out.endswith(f"cancelled jobs 12 13 of {RUN}\n")
    assert slurm.calls("scancel") == ["scancel --quiet 12 13"]


def test_cancel_of_one_stage_and_by_the_start_of_the_id(
    lost: Path, command: Command, slurm: FakeSlurm
) -> None:
    found = command("cancel", RUN[:-2], "--stage", "work", "--yes", "--json").result
    assert json.loads(found) == {"run_dir": str(lost), "cancelled": ["13"]}
    assert slurm.calls("scancel") == ["scancel --quiet 13"]
    assert "(stages: train, work)" in command("cancel", RUN, "--stage", "x", code=2).err


def test_a_name_that_no_job_has_is_the_error_that_it_was(
    lost: Path, command: Command, slurm: FakeSlurm
) -> None:
    assert "no run `words`" in command("cancel", "words", "--yes", code=2).err
    slurm.says("squeue", "", exit_code=1)
    command("cancel", lost, "--yes", code=2)
    assert slurm.calls("scancel") == []
