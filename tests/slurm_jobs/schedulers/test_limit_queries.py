from pathlib import Path

import pytest

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.schedulers.limit_queries import probe_profile


def test_without_slurm_the_error_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="--set cluster=local"):
        probe_profile()


def test_with_slurm_the_profile_is_that_of_a_slurm_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe_profile().scheduler == "slurm"
