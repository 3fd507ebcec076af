"""Parts of the terminal's report; all of them wrap and nothing is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from slurm_jobs.base import units
from slurm_jobs.base.quantities import TimeShare, shown

_BAR_CELLS = 28
_MIN_BAR_CELLS = 8
"""Shorter bars show nothing and are omitted."""
_SMALL_SHARE = 0.01
"""Smaller parts of a budget have no bar, and share a line."""
_KIND_STYLES = {
    "data_wait": "red",
    "rank_wait": "yellow",
    "unexplained": "bright_black",
    "queue": "yellow",
    "checkpoint": "magenta",
    "evaluation": "magenta",
    "compile": "magenta",
    "repeated": "red",
}


@dataclass(frozen=True)
class Tiles:
    """Label, value and note next to each other; if they do not fit, one line each."""

    tiles: Sequence[tuple[str, str, str]]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [max(len(label), len(value)) for label, value, _ in self.tiles]
        table = Table.grid(padding=(0, 3))
        for width in widths:
            table.add_column(min_width=width)
        for row, style in zip(zip(*self.tiles, strict=True), ("dim", "bold", "dim"), strict=True):
            table.add_row(*(Text(cell, style=style) for cell in row))
        word_widths = [max(map(len, note.split()), default=0) for _, _, note in self.tiles]
        min_width = sum(map(max, widths, word_widths)) + 3 * (len(widths) - 1)
        if min_width <= options.max_width:
            yield table
            return
        for label, value, note in self.tiles:
            yield Text.assemble((f"{label} ", "dim"), (value, "bold"), (f", {note}", "dim"))


@dataclass(frozen=True)
class NamedValues:
    """Names and values in sequence; lines break between pairs."""

    pairs: Sequence[tuple[str, str]]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _lines(
            [
                Text.assemble((name, "dim"), f" {value}" if name else value)
                for name, value in self.pairs
            ],
            options.max_width,
        )


def _lines(parts: Sequence[Text], width: int) -> Iterator[Text]:
    line = Text()
    for part in parts:
        if line and len(line) + 3 + len(part) > width:
            yield line
            line = Text()
        line = Text.assemble(line, "   " if line else "  ", part)
    if line:
        yield line


def plain_table(*columns: str, num_text: int = 1) -> Table:
    """Return a table without lines and rows yet; columns after `num_text` are numbers."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < num_text else "right", no_wrap=True)
    return table


def shares_of(shares: Sequence[TimeShare]) -> RenderableType:
    """Return the parts of a time budget, the larger ones with a bar each."""
    return _Shares(shown(shares)) if shares else Text("  nothing was measured")


@dataclass(frozen=True)
class _Shares:
    """Names, bars and numbers; on a narrow terminal the bars shrink, never a number."""

    shares: Sequence[TimeShare]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        small = [s for s in self.shares if abs(s.share) < _SMALL_SHARE]
        if large := [s for s in self.shares if s not in small]:
            yield self._table(large, options)
        if small:
            texts = [Text(share_text(share), style="dim") for share in small]
            yield from _lines(texts, options.max_width)

    @staticmethod
    def _table(shares: Sequence[TimeShare], options: ConsoleOptions) -> Table:
        rows = [(f"  {s.name}", units.percent(s.share), units.seconds(s.seconds)) for s in shares]
        width = sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2
        cells = min(_BAR_CELLS, options.max_width - width - 2)
        table = Table.grid(padding=(0, 2))
        table.add_column(overflow="fold")
        if cells >= _MIN_BAR_CELLS:
            table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        for share, (name, percent, seconds) in zip(shares, rows, strict=True):
            filled = max(0, min(cells, round(share.share * cells)))
            bar = Text("█" * filled, style=_KIND_STYLES.get(share.kind, "blue"))
            bar.append("·" * (cells - filled), style="dim")
            table.add_row(Text(name), *([bar] if cells >= _MIN_BAR_CELLS else []), percent, seconds)
        return table


def share_text(share: TimeShare) -> str:
    """Return the name, the share and the seconds of a part of a time."""
    return f"{share.name} {units.percent(share.share)} ({units.seconds(share.seconds)})"
