r"""Guard of the user's terminal against control characters in untrusted text.

Names of runs and nodes, reasons, notes and log lines may come from a manifest, a colleague's
files or a program's output. All output goes through `GuardedStream`, which writes escape
sequences and characters that change the direction of writing as codes (`\x1b`, `\u202e`).
Tables are guarded cell by cell (`page_console`), because rich's colours are escape
sequences, too. Only logs keep what their programs wrote: completely if no terminal reads them,
colours on a terminal.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, TextIO, cast

from slurm_jobs.base.texts.control_characters import STEERING, plain

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_IN_A_LOG = re.compile(f"{_COLOUR.pattern}|\r|{STEERING.pattern}")


class GuardedStream:
    """Stream that replaces control characters."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write the guarded text."""
        self.unguarded.write(plain(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


class _LogStream(GuardedStream):
    """Stream of a terminal on which a log may have colours and carriage returns."""

    def __init__(self, stream: TextIO, *, with_colours: bool) -> None:
        super().__init__(stream)
        self._with_colours = with_colours

    def write(self, text: str) -> int:
        self.unguarded.write(_IN_A_LOG.sub(self._kept, text))
        return len(text)

    def _kept(self, match: re.Match[str]) -> str:
        if match[0] == "\r":
            return "\r"
        if _COLOUR.fullmatch(match[0]):
            return match[0] if self._with_colours else ""
        return plain(match[0])


def open_missing_streams() -> None:
    """Open the null device in place of standard streams that the shell closed (`>&-`).

    Otherwise the next file that is opened would be standard output for this process and its
    children.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    number = os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    while number <= 2:
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
    sys.stdin = sys.stdin or open(0, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115


def guard_streams() -> None:
    """Guard standard output and error from here on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, GuardedStream):
            setattr(sys, name, GuardedStream(stream))


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream without guard, for callers that guard in another way."""
    return stream.unguarded if isinstance(stream, GuardedStream) else stream


def log_output() -> TextIO:
    """Return standard output for log lines; NO_COLOR and TERM=dumb remove their colours."""
    stream = unguarded(sys.stdout)
    if not stream.isatty():
        return stream
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    return cast("TextIO", _LogStream(stream, with_colours=not is_plain))
