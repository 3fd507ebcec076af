"""What a progress file says that its task is doing, and how often it is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.files import read_json
from slurm_jobs.formats.records.activity import (
    ActiveProgress,
    active_progress,
    begin_steps,
    current_progress,
    doing,
    end_steps,
)
from slurm_jobs.formats.records.progress_file import MIN_INTERVAL_S


class Task:
    """A task of rank 0 that shows its activity, with its progress file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "progress.json"
        progress = current_progress()
        assert progress is not None
        self.progress: ActiveProgress = progress

    def shown(self) -> dict[str, Any]:
        values: dict[str, Any] = read_json(self._path)
        return values

    @property
    def activity(self) -> Any:
        return self.shown()["activity"]

    @property
    def inode(self) -> int:
        """Another one after each write."""
        return self._path.stat().st_ino


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    with active_progress(tmp_path, 0):
        yield Task(tmp_path)
    assert current_progress() is None


def test_a_task_begins_with_its_imports_and_an_unknown_count(task: Task) -> None:
    assert task.activity == "importing"
    assert (task.shown()["total"], task.shown()["unit"]) == (0, "")


def test_before_the_steps_an_activity_is_shown_until_the_next_begins(task: Task) -> None:
    with doing("model_build"):
        assert task.activity == "loading the model"
    written = task.inode
    with doing("closing"):  # is no activity of its own
        assert task.activity == "loading the model"
    assert task.inode == written
    with doing("batch_plan"):
        with doing("microbatch_search"):
            assert task.activity == "trying numbers of microbatches"
        assert task.activity == "planning batches"


def test_an_activity_between_steps_ends_with_the_count_before_it(task: Task) -> None:
    task.progress.count("steps", 200)
    begin_steps()
    assert task.activity is None
    task.progress.update(100, detail="loss 0.5")
    written = task.inode
    begin_steps()
    assert task.inode == written
    with doing("evaluation"):
        assert (task.activity, task.shown()["done"]) == ("evaluating", 100)
    assert (task.activity, task.shown()["detail"]) == (None, "loss 0.5")


def test_after_the_last_step_the_evaluation_stays_shown(task: Task) -> None:
    task.progress.count("steps", 200)
    begin_steps()
    task.progress.update(200)
    end_steps()
    with doing("export"):
        pass
    with doing("evaluation"):
        pass
    assert (task.activity, task.shown()["done"]) == ("evaluating", 200)


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
