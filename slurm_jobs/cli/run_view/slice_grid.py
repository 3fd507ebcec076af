"""Progress of an array as a grid of cells, lettered and coloured by status.

If an array has more slices than the screen has room, a cell represents several, and shows the
worst of them: a single failure among ten thousand slices is visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from slurm_jobs.cli.run_view.status_styles import CELL_STYLES
from slurm_jobs.status.slice_status import Status

if TYPE_CHECKING:
    from rich.text import Text


LETTERS: dict[Status, str] = {
    "failed": "F",
    "unknown": "?",
    "stranded": "S",
    "cancelled": "X",
    "running": "R",
    "waiting": ".",
    "completed": "C",
}
"""Worst first: a cell shows the first status that one of its slices has."""
_RANK = {status: rank for rank, status in enumerate(LETTERS)}
GROUP = 10
"""Cells between two gaps, so that a cell's number can be counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Cells in rows."""

    rows: tuple[tuple[Status, ...], ...]
    slices_per_cell: int

    @property
    def first_slices(self) -> list[int]:
        """Number of the first slice of each row."""
        before = [0]
        for row in self.rows[:-1]:
            before.append(before[-1] + len(row) * self.slices_per_cell)
        return before


def make_grid(statuses: Sequence[Status], *, width: int, max_rows: int) -> Grid:
    """Arrange the slices of a stage, one or more, in cells in slice order.

    `width` is in characters, with the slice number that a row begins with; `max_rows` is 1 or more.
    """
    num_columns = GROUP * max(1, (width - len(str(len(statuses) - 1))) // (GROUP + 1))
    round_numbers = (factor * 10**power for power in count() for factor in (1, 2, 5))
    per_cell = next(n for n in round_numbers if -(-len(statuses) // n) <= num_columns * max_rows)
    cells = [min(chunk, key=_RANK.__getitem__) for chunk in _chunks(statuses, per_cell)]
    return Grid(rows=tuple(map(tuple, _chunks(cells, num_columns))), slices_per_cell=per_cell)


def _chunks(items: Sequence[Status], length: int) -> list[Sequence[Status]]:
    return [items[start : start + length] for start in range(0, len(items), length)]


def grid_lines(statuses: Sequence[Status], *, width: int, max_rows: int) -> list[Text]:
    """Return the grid as lines of text, each with the number of its first slice."""
    from rich.text import Text

    grid = make_grid(statuses, width=width, max_rows=max_rows)
    lines = []
    for first, row in zip(grid.first_slices, grid.rows, strict=True):
        line = Text(no_wrap=True)
        line.append(f"{first:>{len(str(len(statuses) - 1))}}", style="dim")
        for number, status in enumerate(row):
            line.append(" " if number % GROUP == 0 else "")
            line.append(LETTERS[status], style=CELL_STYLES[status])
        lines.append(line)
    return lines


def legend(statuses: Sequence[Status], *, slices_per_cell: int) -> Text:
    """Return the meaning of the letters in a grid, and the slices per cell."""
    from rich.text import Text

    present = set(statuses)
    line = Text(no_wrap=True, overflow="ellipsis")
    for status, letter in LETTERS.items():
        if status in present:
            line.append(letter, style=CELL_STYLES[status])
            line.append(f" {status}  ", style="dim")
    if slices_per_cell > 1:
        line.append(f"a cell is {slices_per_cell} slices, the worst shows", style="dim")
    return line
