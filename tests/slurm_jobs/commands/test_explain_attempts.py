"""Attempts that need an explanation, also where a job has left no record."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.run_folder.orders import name_of_job
from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.cli.tried_again import (
    NAME,
    began,
    ended,
    make,
    row,
    slurm,
    stopped_twice,
    submit_again,
)
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, queue_row

__all__ = ["command", "slurm", "stopped_twice"]


def test_a_job_that_waits_for_its_second_start_is_explained_at_once(
    tmp_path: Path, slurm: FakeSlurm, command: Command
) -> None:
    paths = make(tmp_path, 1)
    began(paths, 1, 2000.0)
    slurm.says("squeue", queue_row("7", "PENDING", "BeginTime", name=NAME))
    slurm.says("sacct", row("NODE_FAIL", 1999, 2031))
    assert "tried again: train." in command("status", paths.run_dir, code=0).out
    out = command("status", paths.run_dir, "--stage", "train", code=0).out
    assert "attempt 1: its node failed, or was taken down; it was killed before" in out


def test_a_job_without_any_record_stays_in_the_table_after_a_resume(
    tmp_path: Path, slurm: FakeSlurm, command: Command
) -> None:
    paths = make(tmp_path, 1)
    submit_again(paths, "u", "8")
    began(paths, 1, 2100.0, job="8", token="u")
    ended(paths, 1, 2130.0, "completed", token="u")
    first, second = row("FAILED", 1999, 2002), row("COMPLETED", 2099, 2131, "8")
    slurm.says("sacct", first + second.replace(NAME, name_of_job("r", "train", "u")))
    out = command("status", paths.run_dir, "--stage", "train", code=0).out
    assert "job 7: FAILED before its supervisor started" in out
