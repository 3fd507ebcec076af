r"""What reaches the user's terminal: no character of a stranger's that steers it.

Names of runs and nodes, reasons, notes and log lines may come from a manifest, a colleague's files
or a program's output. All that verbs print goes through `GuardedStream`, which writes an escape
sequence, or a sign that turns the direction of writing, as its code (`\x1b`, `\u202e`). Tables
are guarded cell by cell (`output.page_console`), as rich's own colours are escape sequences, too.
Logs alone keep what their programs wrote: whole where no terminal reads them, colours on one.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, TextIO, cast

from slurm_jobs.common.steering import STEERING, plain

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_IN_A_LOG = re.compile(f"{_COLOUR.pattern}|\r|{STEERING.pattern}")


class GuardedStream:
    """A stream that no text steers."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write it, plain."""
        self.unguarded.write(plain(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


class _LogStream(GuardedStream):
    """A terminal on which a log may have its colours, and go back to a line's start."""

    def __init__(self, stream: TextIO, *, with_colours: bool) -> None:
        super().__init__(stream)
        self._with_colours = with_colours

    def write(self, text: str) -> int:
        self.unguarded.write(_IN_A_LOG.sub(self._kept, text))
        return len(text)

    def _kept(self, found: re.Match[str]) -> str:
        if found[0] == "\r":
            return "\r"
        if _COLOUR.fullmatch(found[0]):
            return found[0] if self._with_colours else ""
        return plain(found[0])


def guard_streams() -> None:
    """Guard standard output and error from here on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, GuardedStream):
            setattr(sys, name, GuardedStream(stream))


def unguarded(stream: TextIO) -> TextIO:
    """For who guards by other means."""
    return stream.unguarded if isinstance(stream, GuardedStream) else stream


def log_output() -> TextIO:
    """Standard output for lines of logs; NO_COLOR and TERM=dumb take their colours away."""
    stream = unguarded(sys.stdout)
    if not stream.isatty():
        return stream
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    return cast("TextIO", _LogStream(stream, with_colours=not is_plain))
