"""What verbs print on: the console for tables, and a screen that a reader may leave."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_OF_A_PIPE = 160


def console() -> Console:
    """As wide as the terminal; wide enough for whole lines where the output goes to a file."""
    from rich.console import Console

    found = Console()
    if found.is_terminal or "COLUMNS" in os.environ:
        return found
    return Console(width=WIDTH_OF_A_PIPE)


class LeavableStream:
    """A stream whose reader (head, less) may leave while the verb goes on with its work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, to nobody if nobody reads any more."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._to_nobody()
            return len(text)

    def flush(self) -> None:
        """Flush, likewise."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._to_nobody()

    def _to_nobody(self) -> None:
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, self._stream.fileno())
        os.close(nobody)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
