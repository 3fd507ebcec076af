"""Scaling on one screen of the terminal, 80 columns wide. rich honours NO_COLOR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.text import Text

from slurm_jobs.base import units
from slurm_jobs.report.comparison.scaling import Point, ScalingResult, Series
from slurm_jobs.report.comparison.speed_verdict import width_text
from slurm_jobs.report.text.terminal_parts import plain_table

_BAR_CELLS = 14
"""Width left in 80 columns by numbers of usual size."""
_TITLES = {
    "strong": "strong scaling (the same global batch)",
    "weak": "weak scaling (the same batch a rank)",
    "neither": "neither strong nor weak scaling",
}


def render_scaling(scaling: ScalingResult) -> RenderableType:
    """Render all series."""
    parts: list[RenderableType] = []
    for series in scaling.series:
        named = f" [{series.name}]" if series.name else ""
        style = "bold red" if series.as_given[0].problems else "bold"
        parts += [
            Text(f"{_TITLES[series.kind].capitalize()}{named}", style="bold"),
            Text(f"  {scaling_headline(series)}", style=style),
        ]
        parts += [
            Text(f"  {units.number_of('rank', point.num_ranks)}: {line}", style="red")
            for point in series.as_given
            for line in point.problems
        ]
        parts += [Text(f"  note: {note}", style="yellow") for note in series.notes]
        if series.batch_note:
            parts.append(Text(f"  {series.batch_note}", style="yellow"))
        parts.append(_table(series.as_given))
        if series.honest:
            parts += [Text("  against the first valid base", style="dim"), _table(series.honest)]
        parts.append(Text(""))
    parts.extend(Text(f"note: {line}", style="yellow") for line in scaling.warnings)
    return Group(*parts)


def scaling_headline(series: Series) -> str:
    """Return the conclusion on a series, in one sentence."""
    base, last = series.as_given[0], series.as_given[-1]
    if base.problems and series.honest:
        last_valid = series.honest[-1]
        return (
            f"baseline unhealthy: against {units.number_of('rank', base.num_ranks)}, "
            f"{_reached(last)}; against the first valid base, "
            f"{units.number_of('rank', series.honest[0].num_ranks)}, {_reached(last_valid)}"
        )
    if base.problems:
        return (
            f"baseline unhealthy, and no other is valid: do not trust that {_reached(last)}; "
            "fix the problems below and run the base again"
        )
    return f"{_reached(last)}, against {units.number_of('rank', base.num_ranks)}"


def _reached(point: Point) -> str:
    return (
        f"{point.num_ranks} ranks are {point.speedup:.2f} times as fast "
        f"({units.percent(point.efficiency)} of ideal)"
    )


def _table(points: Sequence[Point]) -> RenderableType:
    columns = ("ranks", "runs", "tokens/s", "times", "ideal", "of ideal", "95 % interval")
    table = plain_table(*columns, num_text=0)
    table.add_column("| is the ideal", overflow="fold")
    most = max(max(point.speedup, point.ideal) for point in points)
    for point in points:
        if point.low is None or point.high is None:
            interval = "" if point.speedup == point.ideal == 1 else "single runs"
        elif width_text(point.low, point.high):
            interval = "too few runs"
        else:
            interval = f"{point.low * 100:.0f} to {units.percent(point.high)}"
        table.add_row(
            f"{point.num_ranks}",
            f"{len(point.runs)}",
            units.significant(point.tokens_per_s),
            f"{point.speedup:.2f}",
            f"{point.ideal:.2f}",
            units.percent(point.efficiency),
            interval,
            _Bar(point, most),
        )
    return table


@dataclass(frozen=True)
class _Bar:
    """Bar as long as the numbers next to it allow."""

    point: Point
    most: float

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        return Measurement(1, _BAR_CELLS + 1)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        last = max(0, min(_BAR_CELLS, options.max_width - 1))
        cells = [" "] * (last + 1)
        filled = round(self.point.speedup / self.most * last)
        cells[:filled] = ["█"] * filled
        cells[round(self.point.ideal / self.most * last)] = "|"
        yield Text("".join(cells), style="red" if self.point.problems else "blue", no_wrap=True)
