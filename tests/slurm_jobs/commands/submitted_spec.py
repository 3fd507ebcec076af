"""A spec for Slurm whose programs are the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm

SPEC = "name: s\ncluster: auto\nstages: {a: {shell: 'true'}}\n"
NOBODY = "error: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Slurm's programs, none of which reaches the controller."""
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    for program in ("sbatch", "scontrol", "sinfo", "squeue", "sacct"):
        fake.says(program, "", errors=f"{program}: {NOBODY}", exit_code=1)
    return fake


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)
    return file
