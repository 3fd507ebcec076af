"""Progress of an array as a grid of cells, lettered and coloured by status. PURE.

If an array has more slices than the screen has room, a cell represents several, and shows the worst
of them: a single failure among ten thousand slices is visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from slurm_jobs.reconcile import Status

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

_CELL_STYLES: dict[Status, str] = {
    "failed": "bold white on red",
    "unknown": "bold white on magenta",
    "stranded": "black on yellow",
    "cancelled": "black on yellow",
    "running": "black on cyan",
    "waiting": "dim",
    "completed": "black on green",
}
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
    """Arrange the slices of a stage in cells, in slice order.

    Args:
        statuses: for all slices; at least one.
        width: characters of a line, with the slice number that a row begins with.
        max_rows: at least 1.
    """
    groups = max(1, (width - _label_width(statuses)) // (GROUP + 1))
    num_columns = groups * GROUP
    per_cell = next(n for n in _round_numbers() if -(-len(statuses) // n) <= num_columns * max_rows)
    cells = [
        min(statuses[start : start + per_cell], key=_RANK.__getitem__)
        for start in range(0, len(statuses), per_cell)
    ]
    rows = [
        tuple(cells[start : start + num_columns]) for start in range(0, len(cells), num_columns)
    ]
    return Grid(rows=tuple(rows), slices_per_cell=per_cell)


def _round_numbers() -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50 and so on."""
    for power in count():
        yield from (factor * 10**power for factor in (1, 2, 5))


def _label_width(statuses: Sequence[Status]) -> int:
    return len(str(len(statuses) - 1))


def grid_lines(statuses: Sequence[Status], *, width: int, max_rows: int) -> list[Text]:
    """Return the grid as lines of text, each with the number of its first slice."""
    from rich.text import Text

    grid = make_grid(statuses, width=width, max_rows=max_rows)
    lines = []
    for first, row in zip(grid.first_slices, grid.rows, strict=True):
        line = Text(no_wrap=True)
        line.append(f"{first:>{_label_width(statuses)}}", style="dim")
        for number, status in enumerate(row):
            line.append(" " if number % GROUP == 0 else "")
            line.append(LETTERS[status], style=_CELL_STYLES[status])
        lines.append(line)
    return lines


def legend(statuses: Sequence[Status], *, slices_per_cell: int) -> Text:
    """Return the meaning of the letters in a grid, and the slices per cell."""
    from rich.text import Text

    present = set(statuses)
    line = Text(no_wrap=True, overflow="ellipsis")
    for status, letter in LETTERS.items():
        if status in present:
            line.append(letter, style=_CELL_STYLES[status])
            line.append(f" {status}  ", style="dim")
    if slices_per_cell > 1:
        line.append(f"a cell is {slices_per_cell} slices, the worst shows", style="dim")
    return line
