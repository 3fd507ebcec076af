"""Standard output of commands that must finish their work, even if no one reads it."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast

from slurm_jobs.cli.terminal.guarded_streams import GuardedStream, unguarded


def make_output_dispensable() -> DispensableOutput:
    """Continue from here on even if standard output can no longer be written."""
    dispensable = DispensableOutput(unguarded(sys.stdout))
    sys.stdout = cast("TextIO", GuardedStream(cast("TextIO", dispensable)))
    return dispensable


class DispensableOutput:
    """Stream that discards its text once the reader (head, less) has left or a disk is full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None
        """Why text was lost. None if none was, or if the reader left, which readers may do."""

    def write(self, text: str) -> int:
        """Write; discard the text if that is not possible."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._discard_output(error)
            return len(text)

    def flush(self) -> None:
        """Flush; discard the text if that is not possible."""
        try:
            self._stream.flush()
        except OSError as error:
            self._discard_output(error)

    def _discard_output(self, error: OSError) -> None:
        if self.failure is None and not isinstance(error, BrokenPipeError):
            self.failure = error
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
