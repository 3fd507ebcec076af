"""What verbs print on: the console for tables, and a screen that a reader may leave."""

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
    """As wide as the terminal; wide enough for whole lines where the output goes to a file."""
    found = page_console()
    if found.is_terminal or "COLUMNS" in os.environ:
        return found
    return page_console(width=WIDTH_OF_A_PIPE)


def page_console(width: int | None = None, *, stderr: bool = False) -> Console:
    """As wide as it is told, else as the terminal, else 80 columns; no text steers it.

    A reader that has left raises BrokenPipeError, as with `print`; rich would end the process with
    exit code 1, which means here that the run failed.
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
    """A table of plain cells, that are broken only where the screen is too narrow for them."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def is_room_for(table: Table, screen: Console) -> bool:
    """Whether no cell of a table need be broken on this screen."""
    without_end = screen.options.update_width(_WIDER_THAN_ANY)
    return screen.measure(table, options=without_end).maximum <= screen.width


def keep_on_writing() -> None:
    """From here on whoever reads standard output may leave."""
    leavable = cast("TextIO", LeavableStream(unguarded(sys.stdout)))
    sys.stdout = cast("TextIO", GuardedStream(leavable))


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
