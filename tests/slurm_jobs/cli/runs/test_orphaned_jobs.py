"""Jobs whose run folder was removed; squeue is a program of the test's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.runs.lost_runs import RUN, lost
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm

__all__ = ["lost"]


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", str(tmp_path / "runs"))
    (tmp_path / "runs").mkdir()
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("scancel", "")
    return fake


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
