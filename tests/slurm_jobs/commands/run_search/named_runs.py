"""Runs in a folder that the environment names."""

import json
import os
from pathlib import Path

import pytest


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `runs` of a user who stands beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    return tmp_path / "runs"


def make(runs: Path, name: str, age_s: float = 0.0, spec: str = "words.yaml") -> Path:
    file = runs / name / "run.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"spec_file": str(Path(spec).absolute())}))
    moment = file.stat().st_mtime - age_s
    os.utime(file, (moment, moment))
    return file.parent
