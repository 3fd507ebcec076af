"""A run of this machine for a note."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.run.fabricate import make_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    return make_run(tmp_path / "runs" / "shapes-20261121-080611-5b9e", {"a": 1}, scheduler="local")
