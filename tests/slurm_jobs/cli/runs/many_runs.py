"""Runs on Slurm, and the list of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.run.fabricate import make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


def make(folder: Path, name: str, job_id: str, *, age_s: float = 0.0) -> RunPaths:
    """A run of an array of three, submitted so long ago."""
    moment = time.time() - age_s
    paths = make_run(folder / name, {"a": 3}, created_unix_s=moment)
    submit(paths, "a", 3, job_id)
    os.utime(paths.run_json, (moment, moment))
    return paths


@pytest.fixture
def runs(command: Command) -> Command:
    return lambda *words, code=0: command("runs", *words, code=code)
