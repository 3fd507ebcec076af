"""A task that shows its activity, with its progress file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.files import read_json
from slurm_jobs.formats.records.activity import ActiveProgress, active_progress, current_progress


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
