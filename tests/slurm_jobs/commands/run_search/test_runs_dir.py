"""The folder of runs that the environment names, and what a place that cannot be read means."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from slurm_jobs.base.errors import FileError
from slurm_jobs.commands.run_search.runs_dir import (
    default_runs_dir,
    refuse_missing_place,
    unreadable_place,
)
from tests.slurm_jobs.cli.command import run_command


def test_the_folder_of_runs_in_the_environment_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", "~/runs")
    assert default_runs_dir() == tmp_path / "runs"
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", "/s/$NOT_SET_HERE/runs")
    run_command("status", code=2)
    shown = capsys.readouterr().err
    assert "SLURM_JOBS_RUNS_DIR is /s/$NOT_SET_HERE/runs: no environment variable" in shown


def test_a_missing_folder_is_no_server_that_is_down(tmp_path: Path) -> None:
    refuse_missing_place(tmp_path / "runs")  # the first submit makes it
    with pytest.raises(FileError, match=f"{tmp_path}/scratch: there is no such") as caught:
        refuse_missing_place(tmp_path / "scratch/ada/runs")
    assert "is not mounted on this machine" in str(caught.value)
    assert "server" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ESTALE, "Its file server does not answer"),
        (errno.EIO, "Its file server does not answer"),
        (errno.ENOTCONN, "Its file server does not answer"),
        (errno.ETIMEDOUT, "Its file server does not answer"),
        (errno.EACCES, "ask its owner"),
        (errno.ENOENT, "not mounted"),
    ],
)
def test_the_advice_depends_on_the_error_of_the_system(number: int, advice: str) -> None:
    error = unreadable_place(Path("/s/runs"), Path("/s"), os.strerror(number), number)
    assert advice in str(error)
