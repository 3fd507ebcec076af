"""Output of commands: a console for tables, and a stream whose reader may leave."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from slurm_jobs.cli.screen import GuardedStream, unguarded
from slurm_jobs.common.steering import plain
from slurm_jobs.common.truncation import truncated_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_OF_A_PIPE = 160
_WIDER_THAN_ANY = 100_000


def console() -> Console:
    """Return a console of the terminal's width; wide enough for whole lines in a file."""
    found = page_console()
    if found.is_terminal or "COLUMNS" in os.environ:
        return found
    return page_console(width=WIDTH_OF_A_PIPE)


def page_console(width: int | None = None, *, stderr: bool = False) -> Console:
    """Return a console of the given width, the terminal's, or 80 columns, with guarded text.

    A reader that has left raises BrokenPipeError, as with `print`; rich would exit with code 1,
    which means here that the run failed.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class LeavableConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            # rich copies the rest of a text at each line that it breaks it into
            if isinstance(renderable, str | Text):
                whole = str(renderable)
                short = truncated_lines(whole)
                renderable = renderable if short == whole else Text(short)
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else plain(text), style, control)

    stream = sys.stderr if stderr else sys.stdout
    return LeavableConsole(width=width, file=unguarded(stream))


def table_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of plain cells, which are wrapped only if the screen is too narrow."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def is_room_for(table: Table, screen: Console) -> bool:
    """Check whether the table fits the screen without wrapping a cell."""
    without_end = screen.options.update_width(_WIDER_THAN_ANY)
    return screen.measure(table, options=without_end).maximum <= screen.width


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
            self._to_nobody()
            return len(text)

    def flush(self) -> None:
        """Flush; do nothing if the reader has left."""
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
