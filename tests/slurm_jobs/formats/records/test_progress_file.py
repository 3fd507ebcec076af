"""A progress file is written rarely, by the first rank, and ends no task."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.formats.records.activity import (
    active_progress,
    begin_steps,
    current_progress,
    doing,
)
from slurm_jobs.formats.records.progress_file import MIN_INTERVAL_S
from tests.slurm_jobs.formats.records.active_task import Task, task

__all__ = ["task"]


def test_counts_are_written_as_rarely_as_without_activities(task: Task) -> None:
    task.progress.count("steps", 200)
    begin_steps()
    task.progress.update(1)
    written = task.inode
    task.progress.update(2)
    assert MIN_INTERVAL_S > 1
    assert task.inode == written


def test_ranks_but_the_first_write_nothing(tmp_path: Path) -> None:
    with active_progress(tmp_path, 1), doing("evaluation"):
        assert current_progress() is None
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    with active_progress(tmp_path / "gone", 0), doing("evaluation"):
        pass
