import os

import pytest

from slurm_jobs.schedulers.slurm import _without_surrounding_job


def test_sbatch_is_told_nothing_of_the_job_that_it_is_called_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_a_job = ("SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT", "SLURMD_NODENAME")
    of_ours = ("SLURM_JOBS_LOCAL_TASK_ID", "SLURM_JOBS_RANK", "SLURM_JOBS_OUTPUT_DIR")
    kept = ("SLURM_CONF", "SBATCH_ACCOUNT", "SLURM_JOBS_RUNS_DIR", "SLURM_TIME_FORMAT")
    for name in (*of_a_job, *of_ours, *kept):
        monkeypatch.setenv(name, "x")
    with _without_surrounding_job():
        inside = dict(os.environ)
    assert inside.keys().isdisjoint((*of_a_job, *of_ours))
    assert set(kept) <= inside.keys()
    assert os.environ["SLURM_ARRAY_TASK_ID"] == "x"


def test_no_setting_of_the_users_takes_a_jobs_name_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """sbatch prefers SBATCH_JOB_NAME to the script's own name, by which a job is known."""
    monkeypatch.setenv("SBATCH_JOB_NAME", "mine")
    with _without_surrounding_job():
        assert "SBATCH_JOB_NAME" not in os.environ
    assert os.environ["SBATCH_JOB_NAME"] == "mine"


def test_outside_of_a_job_a_users_settings_of_slurm_are_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("SLURM_MPI_TYPE", "pmix")
    with _without_surrounding_job():
        assert os.environ["SLURM_MPI_TYPE"] == "pmix"
