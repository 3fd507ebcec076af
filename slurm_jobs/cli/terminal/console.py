"""Output of commands: JSON for programs, and a console for tables."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from slurm_jobs.base.files import dump_json
from slurm_jobs.base.texts.control_characters import escaped_json, plain
from slurm_jobs.base.texts.truncation import truncated_lines
from slurm_jobs.cli.terminal.guarded_streams import unguarded

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


WIDTH_OF_A_PIPE = 160
_WIDER_THAN_ANY = 100_000


def console() -> Console:
    """Return a console of the terminal's width; wide enough for whole lines in a file."""
    screen = page_console()
    if screen.is_terminal or "COLUMNS" in os.environ:
        return screen
    return page_console(width=WIDTH_OF_A_PIPE)


def page_console(width: int | None = None, *, stderr: bool = False) -> Console:
    """Return a console of the given width, the terminal's, or 80 columns, with guarded text.

    A reader that has left raises BrokenPipeError, as with `print`; rich would exit with code 1,
    which means here that the run failed.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class GuardedConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            # rich copies the rest of a text for each line that it wraps
            if isinstance(renderable, str | Text):
                whole = str(renderable)
                short = truncated_lines(whole)
                renderable = renderable if short == whole else Text(short)
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else plain(text), style, control)

    stream = sys.stderr if stderr else sys.stdout
    return GuardedConsole(width=width, file=unguarded(stream))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a table of plain cells, which are wrapped only if the screen is too narrow."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell) if isinstance(cell, str) else cell for cell in row])
    return table


def fits_screen(table: Table, screen: Console) -> bool:
    """Check whether the table fits the screen without wrapping a cell."""
    without_end = screen.options.update_width(_WIDER_THAN_ANY)
    return screen.measure(table, options=without_end).maximum <= screen.width


def print_json(value: object) -> None:
    """Print a result for programs."""
    print(escaped_json(dump_json(value)), end="")
