"""Count of the bytes that have arrived, for the progress of the stage and for stop requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from huggingface_hub.utils import tqdm

from slurm_jobs.base.errors import StageStoppedError
from slurm_jobs.base.processes.stop_requests import stop_requested
from slurm_jobs.formats.records.progress_file import Progress

_MB = 10**6


class ReceivedBytes:
    """Counts the bytes of all files; may be used from several threads."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._by_file: dict[str, int] = {}
        self._num_bytes = 0
        self.num_complete = 0
        """Files that this attempt has completed."""

    def update(self, file: str, num_bytes: int) -> None:
        """Record how much of a file is here.

        Raises:
            StageStoppedError: a stop was requested.
        """
        check_stop()
        with self._lock:
            self._num_bytes += num_bytes - self._by_file.get(file, 0)
            self._by_file[file] = num_bytes
            self._progress.update(min(self._num_bytes // _MB, self._progress.total))

    def complete(self, file: str, num_bytes: int) -> None:
        """Record that this attempt has downloaded a file, and that it is sound."""
        self.update(file, num_bytes)
        with self._lock:
            self.num_complete += 1

    def bar_class(self, file: str, is_over: Callable[[], bool]) -> type[tqdm]:
        """Return a progress bar for huggingface_hub that shows nothing and counts a file's bytes.

        Its updates end the download by an exception after a stop request, or when `is_over`.
        """
        received = self

        class CountingBar(tqdm):
            """Bar that huggingface_hub updates with each block of a file."""

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **{**options, "disable": True})

            def update(self, n: float | None = 1) -> None:
                """Count `n` more bytes."""
                if is_over():
                    message = "another file could not be downloaded"
                    raise StageStoppedError(message)
                self.n += n or 0
                received.update(file, int(self.n))

        return CountingBar


def megabytes(num_bytes: int) -> int:
    """Return the units of the progress in so many bytes."""
    return num_bytes // _MB


def check_stop() -> None:
    """Raise StageStoppedError if a stop was requested; complete files are kept."""
    if stop_requested():
        message = "stopped during a download; the files that are complete are kept"
        raise StageStoppedError(message)
