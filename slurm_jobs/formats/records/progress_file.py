"""Progress of a task, written so rarely that a shared file system is not loaded."""

from __future__ import annotations

import time
from pathlib import Path

from slurm_jobs.base.files import write_json_atomic

MIN_INTERVAL_S = 2.0


class Progress:
    """Writer of `progress.json` in a task's folder, at most every `MIN_INTERVAL_S` seconds."""

    def __init__(self, task_dir: Path, unit: str, total: int) -> None:
        self.task_dir = task_dir
        self.unit = unit
        self.total = total
        self._last_write_s = 0.0

    def is_due(self, done: int) -> bool:
        """Return whether `update` would write: rarely, but always for the last one."""
        return done >= self.total or time.monotonic() - self._last_write_s >= MIN_INTERVAL_S

    def update(self, done: int, *, detail: str = "") -> None:
        """Record that `done` of `total` are done."""
        if not self.is_due(done):
            return
        self._last_write_s = time.monotonic()
        self._write(done, detail=detail)

    def _write(self, done: int, *, detail: str = "", activity: str | None = None) -> None:
        write_json_atomic(
            self.task_dir / "progress.json",
            {
                "done": done,
                "total": self.total,
                "unit": self.unit,
                "detail": detail,
                "activity": activity,
                "updated_unix_s": time.time(),
            },
        )
