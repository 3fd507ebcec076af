"""A run without a folder, of which jobs are left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.run.fabricate import submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, queue_row

RUN = "shapes-20261101-101010-abcd"


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
