"""Results of `packing` on the terminal: a table, and rows drawn in characters.

Layout only; a row's samples alternate in shade, and in colour if the terminal has any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.terminal.shown_paths import shown_path

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


_WIDEST = 100
"""Characters of a drawing; wider ones show no more."""
_SHADES = "█▒"
_PADDING = "·"
_COLOURS = ("blue", "yellow", "green", "magenta")
_PADDED, _BEYOND = -1, -2


def print_view(view: Mapping[str, Any], console: Console, *, num_rows: int) -> None:
    """Print everything, with `num_rows` rows drawn for each way."""
    from rich.padding import Padding
    from rich.text import Text

    max_tokens, max_images = view["max_tokens"], view["max_images"]
    images = "" if max_images is None else f", at most {max_images} images"
    heading = (
        f"{shown_path(Path(view['folder']))}: {view['num_samples']:,} samples, rows of "
        f"{max_tokens:,} tokens{images}; {view['global_batch_size']} samples a step on "
        f"{view['num_ranks']} rank{'s' if view['num_ranks'] > 1 else ''}"
    )
    console.print(Text(heading), "", _ways_table(view), "", sep="\n")
    width = min(console.width - 2, _WIDEST)
    for way in view["ways"]:
        if way["problem"] is None:
            padding = f"{way['name']}: {100 * way['padding_share']:.1f} % padding"
            console.print(Text(f"{padding}, {way['samples_per_row']:.1f} samples a row"))
            for row in way["rows"][:num_rows]:
                drawn = row_text(row["lengths"], row["padded"], max_tokens, width)
                console.print(Padding(drawn, (0, 0, 0, 2)))
    legend = (
        f"\n{' '.join(_SHADES)} samples side by side, {_PADDING} padding; a character is "
        f"{max_tokens / width:.3g} tokens"
    )
    for line in (legend, *remarks(view)):
        console.print(Text(line))


def _ways_table(view: Mapping[str, Any]) -> Table:
    """Return a table with one line per way."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    columns = ["rows", "samples\na row", "padding\n%", "slowest\n/ mean"]
    if view["device"] is not None:
        columns += ["step\ns", "tokens\na s", "s / 1,000\nsamples"]
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for way in view["ways"]:
        cells = []
        if way["problem"] is None:
            cells = [
                f"{way['num_rows']:,}",
                f"{way['samples_per_row']:.1f}",
                f"{100 * way['padding_share']:.2f}",
                f"{way['slowest_over_mean']:.3f}",
            ]
        if way["problem"] is None and view["device"] is not None and "step_s" in way:
            cells += [
                _seconds_text(way["step_s"]),
                f"{way['tokens_per_s']:,.0f}",
                _seconds_text(way["s_per_1000_samples"]),
            ]
        name = way["name"] + (" *" if way["is_configured"] else "")
        table.add_row(name, *cells, *["-"] * (len(columns) - len(cells)))
    return table


def _seconds_text(seconds: float) -> str:
    """Format with three digits: `0.158`, `1.20`, `1,304`."""
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:#.3g}"


def row_cells(lengths: Sequence[int], padded: int, max_tokens: int, width: int) -> list[int]:
    """Return the sample in the middle of each of `width` equal parts of a row.

    The number of a sample, -1 for padding, -2 where the row has ended. A sample that is shorter
    than a part may be in none. `padded` are the row's tokens with padding, `max_tokens` those in
    the whole width.
    """
    from bisect import bisect_right
    from itertools import accumulate

    ends = list(accumulate(lengths))
    cells = []
    for number in range(width):
        token = (2 * number + 1) * max_tokens // (2 * width)
        sample = bisect_right(ends, token)
        if sample < len(ends):
            cells.append(sample)
        else:
            cells.append(_PADDED if token < padded else _BEYOND)
    return cells


def row_text(lengths: Sequence[int], padded: int, max_tokens: int, width: int) -> Text:
    """Return one row of at most `width` characters; neighbouring samples differ in shade."""
    from rich.text import Text

    drawn, number = Text(no_wrap=True), 0
    for sample, cells in groupby(row_cells(lengths, padded, max_tokens, width)):
        length = len(list(cells))
        if sample >= 0:
            drawn.append(
                _SHADES[number % len(_SHADES)] * length, style=_COLOURS[number % len(_COLOURS)]
            )
            number += 1
        elif sample == _PADDED:
            drawn.append(_PADDING * length, style="dim")
    return drawn


def remarks(view: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is needed to read the numbers, and the conclusions."""
    if view["num_looked_at"] < view["num_samples"]:
        yield f"of the first {view['num_looked_at']:,} samples in the training's random order"
    if any(way["is_configured"] for way in view["ways"]):
        yield "* as the spec's batching says"
    names: dict[str, list[str]] = {}
    for way in view["ways"]:
        if way["problem"] is not None:
            names.setdefault(way["problem"], []).append(way["name"])
    for problem, ways in names.items():
        yield f"{', '.join(ways)}: {problem}"
    if view["refused"] is not None:
        yield "a training with the spec's batching would be refused"
    shared = [w for w in view["ways"] if w.get("timed_as")]
    if shared:
        pairs = ", ".join(f"{way['name']} as {way['timed_as']}" for way in shared)
        yield f"same batches, timed once: {pairs}"
    if view["device"] is not None:
        yield (
            f"timed: forward and backward of one rank's share on {view['device']}, without "
            "reading, other ranks and the optimizer; `step` waits for the slowest rank"
        )
    yield from (f"note: {note}" for note in view["notes"])
    timed = [way for way in view["ways"] if "step_s" in way]
    if not timed:
        return
    best = min(timed, key=lambda way: way["s_per_1000_samples"])
    # A way whose fastest step beats the best one's median step may be as good.
    limit_s = best["s_per_1000_samples"] * best["fastest_over_median"]
    near = [w["name"] for w in timed if w is not best and w["s_per_1000_samples"] <= limit_s]
    alike = f", not distinguishable by these steps from {', '.join(near)}" if near else ""
    yield f"fastest here: {best['name']} (`batching: {best['batching']}`){alike}"
