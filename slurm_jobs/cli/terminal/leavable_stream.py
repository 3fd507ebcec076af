"""Stream whose reader may leave while the command continues."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast

from slurm_jobs.cli.terminal.guarded_streams import GuardedStream, unguarded


def keep_on_writing() -> None:
    """Continue from here on even if the reader of standard output leaves."""
    leavable = cast("TextIO", LeavableStream(unguarded(sys.stdout)))
    sys.stdout = cast("TextIO", GuardedStream(leavable))


class LeavableStream:
    """Stream whose reader (head, less) may leave while the command continues."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write; discard the text if the reader has left."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._discard_output()
            return len(text)

    def flush(self) -> None:
        """Flush; do nothing if the reader has left."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard_output()

    def _discard_output(self) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
