"""A run with a live job, and a terminal at which a user answers."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command, Ended
from tests.slurm_jobs.run.fabricate import submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm, queue_row


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("scancel", "")
    fake.says("squeue", queue_row("1", "RUNNING"))
    return fake


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return submitted_run(tmp_path / "r", 1)


@pytest.fixture
def cancel(paths: RunPaths, command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`cancel` of the run, asked by a terminal that answers so."""

    def run(answer: str, *words: str, code: int = 0) -> Ended:
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        return command("cancel", paths.run_dir, *words, code=code)

    return run
