"""Output of commands that must finish their work, even if no one reads what they print."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal, TextIO, cast

from slurm_jobs.cli.terminal.guarded_streams import GuardedStream, unguarded


def make_dispensable(name: Literal["stdout", "stderr"]) -> DispensableOutput:
    """Continue from here on even if this stream can no longer be written."""
    dispensable = DispensableOutput(unguarded(getattr(sys, name)))
    setattr(sys, name, GuardedStream(cast("TextIO", dispensable)))
    return dispensable


class DispensableOutput:
    """Stream that discards its text once the reader (head, less) has left or a disk is full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None
        """Why text was lost. None if none was."""

    @property
    def loss(self) -> OSError | None:
        """Return the failure; None also if the reader left, because readers may do that."""
        return None if isinstance(self.failure, BrokenPipeError) else self.failure

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
        self.failure = self.failure or error
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
