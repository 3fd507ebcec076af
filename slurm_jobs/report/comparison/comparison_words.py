"""Comparison of two arms of runs in words. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.report.comparison.comparison_model import Comparison, RunMeasure
from slurm_jobs.report.comparison.speed_verdict import (
    EQUAL_SHARE,
    MAX_RUNS,
    MIN_RUNS,
    change,
    width_text,
)
from slurm_jobs.report.numbers.step_stretches import MIN_BLOCK_STEPS
from slurm_jobs.report.steps.newest_steps import MIN_STEPS


def headline(comparison: Comparison) -> str:
    """Return the conclusion, in one sentence."""
    verdict = comparison.tokens
    if verdict is None:
        return f"No verdict: {_why_none(comparison)}."
    rate = f"{change(verdict)} in real tokens a second"
    if verdict.word in {"faster", "slower"}:
        return f"B is {verdict.word} than A: {rate}."
    if verdict.word == "equal":
        return f"A and B are equal within {EQUAL_SHARE * 100:g} %: {rate}."
    if verdict.word == "cannot tell":
        few = " from so few runs" if width_text(verdict.low, verdict.high) else ""
        needed = f"more than {MAX_RUNS} runs of each would be needed"
        if verdict.more_runs is not None and comparison.cost_rank_hours is not None:
            runs = units.number_of("more run", verdict.more_runs)
            needed = (
                f"{runs} of each would suffice, if ratio and spread stay as they are: about "
                f"{units.significant(comparison.cost_rank_hours)} {hours_word(comparison.first[0])}"
            )
        return f"Cannot tell{few}: {rate}; {needed}."
    is_different = verdict.word == "different here"
    return (
        f"{'Different' if is_different else 'No difference'} in these two runs: {rate}, from "
        "stretches within each run. Single runs cannot show whether the next two would agree: give "
        f"{MIN_RUNS} or more of each (A1,A2 B1,B2)."
    )


def hours_word(run: RunMeasure) -> str:
    """Return the name of an hour of one rank."""
    return "GPU-hours" if run.device == "cuda" else "rank-hours"


def _why_none(comparison: Comparison) -> str:
    runs = (*comparison.first, *comparison.second)
    if not all(run.tokens_per_s for run in runs):
        return "not all runs counted tokens"
    if few := too_few_steps(runs):
        return few
    sizes = len(comparison.first), len(comparison.second)
    if min(sizes) < MIN_RUNS <= max(sizes):
        return f"one arm has a single run; {MIN_RUNS} of each are needed for a claim"
    short = [f"{run.run_id} has {run.num_steps}" for run in runs if not run.token_stretches]
    return (
        f"too few steps after the warm-up: {', '.join(short)}, and {MIN_BLOCK_STEPS} are needed to "
        f"estimate a run's noise; train for longer, or give {MIN_RUNS} or more of each (A1,A2 "
        f"B1,B2), for which {MIN_STEPS} steps each are enough"
    )


def too_few_steps(runs: Sequence[RunMeasure]) -> str:
    """Return the runs whose few steps may all be one stall; empty if there are none."""
    few = [f"{run.run_id} has {run.num_steps}" for run in runs if run.num_steps < MIN_STEPS]
    if not few:
        return ""
    return (
        f"too few steps after the warm-up: {', '.join(few)}, and {MIN_STEPS} are needed; "
        "train for longer"
    )


def notes_once(runs: Sequence[RunMeasure]) -> list[str]:
    """Return the notes of these runs; equal ones are merged, with the names of the runs."""
    names: dict[str, list[str]] = {}
    for run in runs:
        for note in run.notes:
            names.setdefault(note.removeprefix(f"{run.run_id}: "), []).append(run.run_id)
    notes = []
    for text, ids in names.items():
        which = f"all {len(runs)} runs" if len(ids) == len(runs) > 1 else ", ".join(ids)
        notes.append(f"{which}: {text}")
    return notes
