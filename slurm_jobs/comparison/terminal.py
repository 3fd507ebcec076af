"""A comparison on one screen of the terminal, 80 columns wide. rich honours NO_COLOR."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_jobs.comparison.communication import communication_lines
from slurm_jobs.comparison.model import Comparison, RunMeasure
from slurm_jobs.comparison.sentences import change, headline, hours_word
from slurm_jobs.comparison.settings import in_short
from slurm_jobs.report import words

_STYLES = {"faster": "bold green", "slower": "bold red", "equal": "bold", "cannot tell": "yellow"}
_OF_TWO = {"different here", "alike here"}
_TWO_RATES = (
    "  tokens/s: all tokens over all time but what is set apart below. Ratio above: of the "
    "geometric means of stretches, in which a single long stall weighs less."
)
_MOST_DIFFERENCES = 20
_APART = {
    "checkpoint_s": "checkpoints",
    "evaluation_s": "evaluation on held-out samples",
    "compile_s": "compiling",
}


def render(comparison: Comparison, *, width: int = 80) -> RenderableType:
    """Render the whole comparison for a screen of so many columns."""
    word = comparison.tokens.word if comparison.tokens is not None else ""
    parts: list[RenderableType] = [Text(headline(comparison), style=_STYLES.get(word, "bold"))]
    parts.extend(Text(f"  note: {line}", style="yellow") for line in comparison.warnings)
    parts.extend([Text("\nRuns", style="bold"), _runs(comparison)])
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


def _runs(comparison: Comparison) -> RenderableType:
    """Return a line per run with a short name, and the full names above."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("", no_wrap=True)
    hours = hours_word(comparison.first[0]).replace("hours", "h")
    for name in ("ranks", "steps", "tokens/s", "samples/s", "batch", "memory", "loss", hours):
        table.add_column(name, justify="right", no_wrap=True)
    names = []
    for arm, runs in (("A", comparison.first), ("B", comparison.second)):
        for number, run in enumerate(runs, 1):
            called = arm if len(runs) == 1 else f"{arm}{number}"
            table.add_row(called, *_facts(run))
            names.append(Text(f" {called:3} {run.run_id}"))
    if comparison.tokens is not None and comparison.tokens.word in _OF_TWO:
        names.append(Text(_TWO_RATES, style="dim"))
    return Group(table, *names)


def _facts(run: RunMeasure) -> tuple[str, ...]:
    return (
        f"{run.num_ranks}",
        f"{run.num_steps:,}",
        words.significant(run.tokens_per_s) if run.tokens_per_s else words.NOT_KNOWN,
        words.significant(run.samples_per_s),
        f"{run.samples_per_step:.4g}",
        words.num_bytes(run.memory_peak_bytes),
        words.NOT_KNOWN if run.last_loss is None else words.significant(run.last_loss),
        words.significant(run.rank_hours),
    )


def _apart(comparison: Comparison) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for arm, runs in (("A", comparison.first), ("B", comparison.second)):
        said = ", ".join(
            f"{name} {words.seconds(_mean([run.apart_s[kind] for run in runs]))}"
            for kind, name in _APART.items()
        )
        table.add_row(f"  {arm}", Text(f"mean of a run: {said}{_left_out(runs)}"))
    return table


def _left_out(runs: Sequence[RunMeasure]) -> str:
    counts = {
        "that compiled": sum(run.num_compiled_steps for run in runs),
        "about a profile": sum(run.num_profiled_steps for run in runs),
    }
    listed = [f"{words.number_of('step', num)} {which}" for which, num in counts.items() if num]
    return f"; left out: {', '.join(listed)}" if listed else ""


def _settings(comparison: Comparison, width: int) -> list[RenderableType]:
    """Return a table if no cell of it must wrap; otherwise each value on a separate line."""
    if not comparison.differences:
        return [Text("  nothing that is recorded: the arms are repeats of each other")]
    listed = in_short(comparison.differences, comparison.first, comparison.second)
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("setting", "A", "B"):
        table.add_column(name)
    shown = [
        (one.name, ", ".join(one.first), ", ".join(one.second))
        for one in listed[:_MOST_DIFFERENCES]
    ]
    for row in shown:
        table.add_row(*map(Text, row))
    more = len(listed) - _MOST_DIFFERENCES
    left = [Text(f"  ... and {more} more (--json has all)")] if more > 0 else []
    if sum(max(map(len, column)) + 2 for column in zip(*shown, strict=True)) <= width:
        return [table, *left]
    stacked = [Text(f" {name}\n   A  {first}\n   B  {second}") for name, first, second in shown]
    return [*stacked, *left]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
