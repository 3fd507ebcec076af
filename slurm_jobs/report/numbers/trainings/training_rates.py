"""Rates of a training over the time of its measured steps, by number of ranks. PURE.

Attempts may have different numbers of ranks. A rate over all of them describes no real machine,
so each number of ranks has its own rate, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from slurm_jobs.base.quantities import Quantity, known, missing
from slurm_jobs.report.steps.attempt_steps import AttemptSteps
from slurm_jobs.report.values.training_model import RankCountRates


def rates(attempts: Sequence[AttemptSteps]) -> dict[str, Any]:
    """Return rates over the time of the measured steps, waits and checkpoints included.

    Only steps that every rank recorded count: a rank that lacks some must not lower the sum. The
    numbers of tokens and samples are progress, not statistics, so they include the warm-up.
    """
    whole = [a for a in attempts if a.is_whole]
    wall_s = sum(a.measured_s() for a in whole)
    counted = [a.measured(i) for a in whole for i in range(len(a.ranks))]
    measured = [a.measured(i) for a in attempts for i in range(len(a.ranks))]
    tables = [a.kept(i) for a in attempts for i in range(len(a.ranks))]
    step_s = np.concatenate([m["step_s"] for m in measured])
    padding = total(measured, "num_padding_tokens")
    no_steps = "no step is left after the warm-up"
    no_rate = no_steps if whole else "no attempt has step records of all its ranks"

    def rate(count: float, unit: str) -> Quantity:
        return known(count / wall_s, unit) if wall_s > 0 else missing(unit, no_rate)

    def percentile(percent: float) -> Quantity:
        if not len(step_s):
            return missing("s", no_steps)
        return known(float(np.percentile(step_s, percent)), "s")

    slots = total(measured, "num_tokens") + padding
    return {
        "step_median_s": percentile(50),
        "step_p95_s": percentile(95),
        "steps_per_s": rate(sum(len(a.measured(0)) for a in whole), "steps/s"),
        "samples_per_s": rate(total(counted, "num_samples"), "samples/s"),
        "tokens_per_s": rate(total(counted, "num_tokens"), "tokens/s"),
        "padding_share": known(padding / slots, "fraction")
        if slots
        else missing("fraction", "the steps recorded no tokens" if len(step_s) else no_steps),
        "num_tokens": known(total(tables, "num_tokens"), "tokens"),
        "num_samples": known(total(tables, "num_samples"), "samples"),
    }


def ranks_of(attempts: Sequence[AttemptSteps]) -> dict[str, Any]:
    """Return how many ranks made the steps, and rates by number if there are several."""
    working = [a for a in attempts if max(a.num_kept)] or list(attempts)
    counts = [num for num, _ in itertools.groupby(a.num_ranks for a in working)]
    by_ranks = []
    for num_ranks in dict.fromkeys(counts) if len(set(counts)) > 1 else ():
        alike = [a for a in working if a.num_ranks == num_ranks]
        measured = rates(alike)
        by_ranks.append(
            RankCountRates(
                num_ranks=num_ranks,
                num_steps=sum(a.num_measured for a in alike),
                **{
                    name: measured[name]
                    for name in ("step_median_s", "steps_per_s", "tokens_per_s")
                },
            )
        )
    return {
        "num_ranks": max(a.num_ranks for a in attempts),
        "rank_counts": tuple(counts),
        "rates_by_ranks": tuple(by_ranks),
    }


def total(records: Sequence[np.ndarray], name: str) -> float:
    """Return the sum of a field over records."""
    return float(sum(r[name].sum(dtype=np.float64) for r in records))
