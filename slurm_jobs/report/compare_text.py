"""Comparisons and scaling in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from slurm_jobs.report.compare import Comparison, change, headline, hours_word, in_short, width_text
from slurm_jobs.report.scaling import Point, Scaling, Series
from slurm_jobs.report.values.training_model import ExposedCommunication
from slurm_jobs.shared import units

# Communication in the profiled steps of two arms, and the measured speeds.
#
# Communication concurrent with computation costs nothing, which is the purpose of prefetching. The
# profiles show whether it is hidden, the speeds whether that was a gain. Both are shown, because
# one often holds without the other.


_DIFFERS = 0.02
"""Share of the profiled steps; smaller differences are ignored. Own choice."""


def communication_lines(comparison: Comparison) -> list[str]:
    """Return a line per arm, and the conclusion; none if no step of either was profiled."""
    arms = [
        [run.exposed for run in arm if run.exposed is not None]
        for arm in (comparison.first, comparison.second)
    ]
    if not any(arms):
        return []
    lines = []
    for name, profiles in zip("AB", arms, strict=True):
        text = "no steps were profiled (`profile: {steps: [20, 40]}`)"
        if profiles:
            whole = _mean([profile.communication_share for profile in profiles])
            num_steps = units.number_of("step", sum(profile.num_steps for profile in profiles))
            exposed = units.percent(_mean_exposed(profiles))
            text = f"{units.percent(whole)} of {num_steps}, {exposed} exposed"
        lines.append(f"{name}: {text}")
    return [*lines, *_prediction(comparison, *arms)]


def _prediction(
    comparison: Comparison,
    first: Sequence[ExposedCommunication],
    second: Sequence[ExposedCommunication],
) -> list[str]:
    """Return what the profiles predict for B, and what the speeds show."""
    verdict = comparison.tokens
    if not first or not second or verdict is None:
        return []
    runs = (*comparison.first, *comparison.second)
    batches = [run.samples_per_step for run in runs]
    kinds = {(run.num_ranks, run.cards) for run in runs}
    if len(kinds) > 1 or max(batches) > (1 + _DIFFERS) * min(batches):
        return []  # what a step communicates and computes is not the same
    before, after = _mean_exposed(first), _mean_exposed(second)
    if abs(before - after) < _DIFFERS or max(before, after) >= 1:
        return []
    predicted = (1 - after) / (1 - before)
    has_less = after < before
    text = (
        f"{'less' if has_less else 'more'} time is exposed communication in B: by that alone B / A "
        f"would be {predicted:.2f}, and it is {verdict.ratio:.2f}"
    )
    if has_less and not verdict.low > 1:
        is_hidden = _share_hidden(second) > _share_hidden(first) + _DIFFERS
        reason = "More communication is hidden" if is_hidden else "There is less communication"
        text += (
            f". {reason}, yet B is not surely faster: "
            "computation may have become slower, or the profile, which slows steps down, shows "
            "more exposed communication than other steps have"
        )
    return [text]


def _mean_exposed(profiles: Sequence[ExposedCommunication]) -> float:
    return _mean([profile.share for profile in profiles])


def _share_hidden(profiles: Sequence[ExposedCommunication]) -> float:
    """Return the share of the communication that is concurrent with computation."""
    whole = sum(profile.communication_share for profile in profiles)
    return 1 - sum(profile.share for profile in profiles) / whole if whole > 0 else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# Scaling on one screen of the terminal, 80 columns wide. rich honours NO_COLOR.


_BAR_CELLS = 14
"""Width left in 80 columns by numbers of usual size."""
_TITLES = {
    "strong": "strong scaling (the same global batch)",
    "weak": "weak scaling (the same batch a rank)",
    "neither": "neither strong nor weak scaling",
}


def render_scaling(scaling: Scaling) -> RenderableType:
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
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("ranks", "runs", "tokens/s", "times", "ideal", "of ideal", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
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


# A comparison on one screen of the terminal, 80 columns wide. rich honours NO_COLOR.


_STYLES = {"faster": "bold green", "slower": "bold red", "equal": "bold", "cannot tell": "yellow"}
_SINGLE_RUN_WORDS = {"different here", "alike here"}
_TWO_RATES = (
    "  tokens/s: all tokens over all time, except what is set apart below. The ratio above is of "
    "geometric means of stretches, in which a single long stall weighs less."
)
_MOST_DIFFERENCES = 20
_APART = {
    "checkpoint_s": "checkpoints",
    "evaluation_s": "evaluation on held-out samples",
    "compile_s": "compiling",
}


def render_comparison(comparison: Comparison, *, width: int = 80) -> RenderableType:
    """Render the whole comparison for a screen of so many columns."""
    word = comparison.tokens.word if comparison.tokens is not None else ""
    parts: list[RenderableType] = [Text(headline(comparison), style=_STYLES.get(word, "bold"))]
    parts.extend(Text(f"  note: {line}", style="yellow") for line in comparison.warnings)
    parts.extend([Text("\nRuns", style="bold"), *_runs(comparison)])
    if comparison.samples is not None:
        parts.append(Text(f"  per sample: {change(comparison.samples)}"))
    parts.extend([Text("\nSet apart (not in the speeds)", style="bold"), _apart(comparison)])
    lines = communication_lines(comparison)
    if lines:
        parts.append(Text("\nCommunication (of the profiled steps)", style="bold"))
        parts.extend(Text(f"  {line}") for line in lines)
    parts.append(Text("\nWhat differs in the settings", style="bold"))
    parts.extend(_settings(comparison, width))
    return Group(*parts)


def _runs(comparison: Comparison) -> list[RenderableType]:
    """Return a table with short names of the runs, and their full names below."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("", no_wrap=True)
    hours = hours_word(comparison.first[0]).replace("hours", "h")
    for name in ("ranks", "steps", "tokens/s", "samples/s", "batch", "memory", "loss", hours):
        table.add_column(name, justify="right", no_wrap=True)
    names = []
    for arm, runs in (("A", comparison.first), ("B", comparison.second)):
        for number, run in enumerate(runs, 1):
            short_name = arm if len(runs) == 1 else f"{arm}{number}"
            table.add_row(
                short_name,
                f"{run.num_ranks}",
                f"{run.num_steps:,}",
                units.significant(run.tokens_per_s) if run.tokens_per_s else units.NOT_KNOWN,
                units.significant(run.samples_per_s),
                f"{run.samples_per_step:.4g}",
                units.num_bytes(run.memory_peak_bytes),
                units.NOT_KNOWN if run.last_loss is None else units.significant(run.last_loss),
                units.significant(run.rank_hours),
            )
            names.append(Text(f" {short_name:3} {run.run_id}"))
    if comparison.tokens is not None and comparison.tokens.word in _SINGLE_RUN_WORDS:
        names.append(Text(_TWO_RATES, style="dim"))
    return [table, *names]


def _apart(comparison: Comparison) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for arm, runs in (("A", comparison.first), ("B", comparison.second)):
        text = "mean of a run: " + ", ".join(
            f"{name} {units.seconds(_mean([run.apart_s[kind] for run in runs]))}"
            for kind, name in _APART.items()
        )
        counts = {
            "that compiled": sum(run.num_compiled_steps for run in runs),
            "for a profile": sum(run.num_profiled_steps for run in runs),
        }
        left_out = [f"{units.number_of('step', n)} {which}" for which, n in counts.items() if n]
        if left_out:
            text += f"; left out: {', '.join(left_out)}"
        table.add_row(f"  {arm}", Text(text))
    return table


def _settings(comparison: Comparison, width: int) -> list[RenderableType]:
    """Return a table if no cell of it must wrap; otherwise each value on a separate line."""
    if not comparison.differences:
        return [Text("  nothing that is recorded: the arms are repeats of each other")]
    listed = in_short(comparison.differences, comparison.first, comparison.second)
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("setting", "A", "B"):
        table.add_column(name)
    shown = [
        (difference.name, ", ".join(difference.first), ", ".join(difference.second))
        for difference in listed[:_MOST_DIFFERENCES]
    ]
    for row in shown:
        table.add_row(*map(Text, row))
    more = len(listed) - _MOST_DIFFERENCES
    left = [Text(f"  ... and {more} more (--json has all)")] if more > 0 else []
    if sum(max(map(len, column)) + 2 for column in zip(*shown, strict=True)) <= width:
        return [table, *left]
    stacked = [Text(f" {name}\n   A  {first}\n   B  {second}") for name, first, second in shown]
    return [*stacked, *left]
