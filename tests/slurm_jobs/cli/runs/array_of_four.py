"""A run on Slurm with an array of four tasks, and its status."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.run.fabricate import end, submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import (
    FakeSlurm,
    account_row,
    make_fake_slurm,
    queue_row,
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setenv("COLUMNS", "160")
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("squeue", queue_row("1_0", "RUNNING") + queue_row("1_1", "PENDING", "Priority"))
    fake.says("sacct", account_row("1_2", "TIMEOUT"))
    return fake


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """An array of four, of which one is complete."""
    made = submitted_run(tmp_path / "r", 4)
    end(made, "a", [3])
    return made


@pytest.fixture
def status(paths: RunPaths, command: Command) -> Command:
    return lambda *words, code=0: command("status", paths.run_dir, *words, code=code)
