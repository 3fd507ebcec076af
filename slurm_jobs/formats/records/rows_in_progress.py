"""Record of the rows that a task works on, which names the suspects if the task is killed.

A decoder that crashes or exhausts the memory ends the process without a message. So each thread
writes the row that it begins into its slot of a small file, and clears the slot when it is done.
The file is removed when the slice ends in any other way. A slot costs two small writes for each
row, which stay in the page cache of the node. Standard library only, because the supervisor
reads it.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_jobs.base.regular_files import open_regular

_SLOT_BYTES = 256
_MAX_CHARACTERS = 200
_MAX_NAMED = 4
_MAX_SLOTS = 1024


def rows_path(task_dir: Path) -> Path:
    """Return the file with the rows that a task works on."""
    return task_dir / "rows.in-progress"


class RowsInProgress:
    """Slots for the rows of a task's threads. A file that cannot be written is ignored."""

    def __init__(self, task_dir: Path) -> None:
        """Create the file; `close` removes it."""
        self._path = rows_path(task_dir)
        self._fd: int | None = None
        self._numbers = itertools.count()
        self._thread = threading.local()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with suppress(OSError):
            self._fd = os.open(self._path, flags, 0o600)

    @contextmanager
    def working_on(self, text: str) -> Iterator[None]:
        """Keep `text`, which names a row, in this thread's slot while the block runs."""
        self._write(text[:_MAX_CHARACTERS])
        try:
            yield
        finally:
            self._write("")

    def close(self) -> None:
        """Remove the file, because the task itself reports how it ends."""
        if self._fd is None:
            return
        os.close(self._fd)
        self._fd = None
        with suppress(OSError):
            self._path.unlink()

    def _write(self, text: str) -> None:
        if self._fd is None:
            return
        slot = getattr(self._thread, "slot", None)
        if slot is None:
            slot = self._thread.slot = next(self._numbers) % _MAX_SLOTS
        data = text.encode("utf-8", "backslashreplace")[:_SLOT_BYTES].ljust(_SLOT_BYTES, b"\0")
        with suppress(OSError):
            os.pwrite(self._fd, data, slot * _SLOT_BYTES)


def rows_in_progress(task_dir: Path) -> str:
    """Return `rows in progress: train.csv:2: cat.jpg, ...` of a task that was killed, else ""."""
    try:
        with open_regular(rows_path(task_dir)) as stream:
            data = stream.read(_MAX_SLOTS * _SLOT_BYTES)
    except OSError:
        return ""
    slots = [data[at : at + _SLOT_BYTES] for at in range(0, len(data), _SLOT_BYTES)]
    rows = sorted({slot.rstrip(b"\0").decode("utf-8", "replace") for slot in slots} - {""})
    if not rows:
        return ""
    more = f" and {len(rows) - _MAX_NAMED} more" if len(rows) > _MAX_NAMED else ""
    return f"rows in progress: {', '.join(rows[:_MAX_NAMED])}{more}"
