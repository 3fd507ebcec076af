"""squeue and sacct are programs of the test's own."""

from __future__ import annotations

import json

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.runs.array_of_four import paths, slurm, status
from tests.slurm_jobs.run.fabricate import end
from tests.slurm_jobs.schedulers.fake_slurm import (
    ACCOUNTS_OFF,
    DATABASE_DOWN,
    FakeSlurm,
    account_row,
    queue_row,
)

__all__ = ["paths", "slurm", "status"]


def test_the_screen_shows_the_age_of_the_answer_and_fresh_queries_again(
    status: Command, slurm: FakeSlurm, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_jobs.run.kept_answers.FRESH_S", 3600.0)
    status()
    kept = json.loads(paths.scheduler_answer.read_text())
    kept["asked_unix_s"] -= 600
    paths.scheduler_answer.write_text(json.dumps(kept))
    assert "squeue, 10 min 0" in status().out
    assert "10 min" not in status("--fresh").out


def test_the_expected_start_of_the_next_task_is_shown(
    status: Command, slurm: FakeSlurm, paths: RunPaths
) -> None:
    slurm.says("squeue", queue_row("1_1", "PENDING", "Priority", start="4102444800"))
    slurm.says("sacct", "")
    end(paths, "a", [0, 2])
    assert "Priority; expected to start" in status().out


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (DATABASE_DOWN, "could not be queried: sacct"),
        (ACCOUNTS_OFF, "note: this cluster keeps no accounts"),
    ],
)
def test_missing_accounts_are_reported_and_prove_nothing(
    status: Command, slurm: FakeSlurm, errors: str, said: str
) -> None:
    slurm.says("sacct", "", errors=errors, exit_code=1)
    output = status().out
    assert said in output
    assert "1/4, 1 running, 1 waiting, 1 unknown" in output
    assert "a slice 2 unknown" in output


def test_accounts_that_lag_are_reported_and_prove_nothing(
    status: Command, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_jobs.schedulers.agreement.AGREE_S", 0.0)  # the jobs are old
    slurm.says("squeue", "")
    slurm.says("sacct", "".join(account_row(f"1_{index}", "RUNNING") for index in range(3)))
    output = status(code=3).out
    assert "1/4, 3 unknown" in output
    assert "sacct lags behind: it still says RUNNING" in output
