"""Comparison on one screen of the terminal, 80 columns wide. rich honours NO_COLOR."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_jobs.base import units
from slurm_jobs.report.comparison.communication_text import communication_lines
from slurm_jobs.report.comparison.comparison_model import Comparison
from slurm_jobs.report.comparison.comparison_words import headline, hours_word
from slurm_jobs.report.comparison.run_settings import in_short
from slurm_jobs.report.comparison.speed_verdict import change, mean_value
from slurm_jobs.report.text.terminal_parts import plain_table

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
    hours = hours_word(comparison.first[0]).replace("hours", "h")
    columns = ("ranks", "steps", "tokens/s", "samples/s", "batch", "memory", "loss", hours)
    table = plain_table("", *columns)
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
        parts = []
        for kind, name in _APART.items():
            mean_s = mean_value([run.apart_s[kind] for run in runs])
            parts.append(f"{name} {units.seconds(mean_s)}")
        text = f"mean of a run: {', '.join(parts)}"
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
    table = plain_table("setting", "A", "B", num_text=3)
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
