"""Comparison in words. PURE."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slurm_jobs.common.stretches import MIN_STEPS
from slurm_jobs.common.student import CONFIDENCE
from slurm_jobs.comparison.model import Comparison, RunMeasure
from slurm_jobs.comparison.verdict import EQUAL_SHARE, MAX_RUNS, MIN_RUNS, Verdict
from slurm_jobs.report import words
from slurm_jobs.report.numbers.judged import MIN_STEPS as LEAST_STEPS

_WIDE_FACTOR = 3.0
"""Factor between the ends of an interval: settings that matter change a speed by less. Own choice.
"""
_INTERVAL = f"{CONFIDENCE:.0%} interval".replace("%", " %")


def headline(comparison: Comparison) -> str:
    """Return the conclusion, in one sentence."""
    verdict = comparison.tokens
    if verdict is None:
        return f"No verdict: {_why_none(comparison)}."
    if verdict.word in {"faster", "slower"}:
        return f"B is {verdict.word} than A: {change(verdict)} in real tokens a second."
    if verdict.word == "equal":
        margin = f"{EQUAL_SHARE * 100:g} %"
        return f"A and B are equal within {margin}: {change(verdict)} in real tokens a second."
    if verdict.word == "cannot tell":
        few = " from so few runs" if width_text(verdict.low, verdict.high) else ""
        told = f"{change(verdict)} in real tokens a second"
        return f"Cannot tell{few}: {told}; {_what_it_takes(comparison)}."
    return _of_two_runs(verdict)


def change(verdict: Verdict) -> str:
    """Return `B / A 1.032 (95 % interval 1.010 to 1.054)`; without a verdict, the width."""
    wide = width_text(verdict.low, verdict.high) if verdict.word == "cannot tell" else ""
    told = wide or f"{verdict.low:.3f} to {verdict.high:.3f}"
    return f"B / A {verdict.ratio:.3f} ({_INTERVAL} {told})"


def width_text(low: float, high: float) -> str:
    """Return `wider than a factor of 1,000` if the interval is uselessly wide; else nothing."""
    if low <= 0 or math.isinf(high) or high / low <= _WIDE_FACTOR:
        return ""
    power = 10 ** math.floor(math.log10(high / low))
    return f"wider than a factor of {int(high / low / power) * power:,}"


def hours_word(run: RunMeasure) -> str:
    """Return the name of an hour of one rank."""
    return "GPU-hours" if run.device == "cuda" else "rank-hours"


def _of_two_runs(verdict: Verdict) -> str:
    found = (
        "different in these two runs"
        if verdict.word == "different here"
        else ("no difference in these two runs")
    )
    return (
        f"{found.capitalize()}: {change(verdict)} in real tokens a second, from stretches within "
        "each run. Single runs cannot show whether the next two would agree: give "
        f"{MIN_RUNS} or more of each (A1,A2 B1,B2)."
    )


def _what_it_takes(comparison: Comparison) -> str:
    verdict = comparison.tokens
    assert verdict is not None
    if verdict.more_runs is None or comparison.cost_rank_hours is None:
        return f"more than {MAX_RUNS} runs of each would be needed"
    hours = words.significant(comparison.cost_rank_hours)
    runs = words.number_of("more run", verdict.more_runs)
    return (
        f"{runs} of each would suffice, if ratio and spread stay as they are: about {hours} "
        f"{hours_word(comparison.first[0])}"
    )


def _why_none(comparison: Comparison) -> str:
    runs = (*comparison.first, *comparison.second)
    if not all(run.tokens_per_s for run in runs):
        return "not all runs counted tokens"
    few = [f"{run.run_id} has {run.num_steps}" for run in runs if run.num_steps < LEAST_STEPS]
    if few:
        return (
            f"too few steps after the warm-up: {', '.join(few)}, and {LEAST_STEPS} are needed; "
            "train for longer"
        )
    if (
        min(len(comparison.first), len(comparison.second)) < MIN_RUNS
        and max(len(comparison.first), len(comparison.second)) >= MIN_RUNS
    ):
        return f"one arm has a single run; {MIN_RUNS} of each are needed for a claim"
    short = [f"{run.run_id} has {run.num_steps}" for run in runs if not run.token_stretches]
    return (
        f"too few steps after the warm-up: {', '.join(short)}, and {MIN_STEPS} are needed to tell "
        f"a run's noise; train for longer, or give {MIN_RUNS} or more of each (A1,A2 B1,B2), for "
        f"which {LEAST_STEPS} steps each will do"
    )


def notes_once(runs: Sequence[RunMeasure]) -> list[str]:
    """Return the notes of these runs; equal ones are merged, with the names of the runs."""
    names: dict[str, list[str]] = {}
    for run in runs:
        for note in run.notes:
            names.setdefault(note.removeprefix(f"{run.run_id}: "), []).append(run.run_id)
    everybody = f"all {len(runs)} runs"
    return [
        f"{everybody if len(ids) == len(runs) > 1 else ', '.join(ids)}: {text}"
        for text, ids in names.items()
    ]
