"""The steps that a speed is of: those that neither compiled nor were profiled. PURE.

Checkpoints and evaluation within a step are taken out of its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_jobs.common.timings import NOT_TRAINING, PROFILE_WRITE_SPAN
from slurm_jobs.report.numbers.steps import AttemptSteps


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainSteps:
    """The measured steps of all attempts that had as many ranks, one number a step."""

    tokens: np.ndarray
    """Of all ranks, [num_steps]; the others alike."""
    samples: np.ndarray
    seconds: np.ndarray
    """Without what is set apart, of the rank that the attempt's time is of."""
    num_compiled: int
    num_profiled: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Of the measured steps of a training, what is set apart left out."""

    tokens_per_s: float
    """Real ones, of all ranks; 0 where none are counted."""
    samples_per_s: float
    step_s: float
    """Mean."""
    num_steps: int


def speed_of(attempts: Sequence[AttemptSteps]) -> Speed | None:
    """The speed as `measure` has it; None where all steps that count are set apart.

    Args:
        attempts: with as many ranks each.
    """
    whole = [a for a in attempts if len(a.ranks) == a.num_ranks and a.num_measured]
    steps = plain_steps(whole) if whole else None
    if steps is None or not len(steps.seconds):
        return None
    seconds = float(steps.seconds.sum())
    return Speed(
        tokens_per_s=float(steps.tokens.sum() / seconds),
        samples_per_s=float(steps.samples.sum() / seconds),
        step_s=seconds / len(steps.seconds),
        num_steps=len(steps.seconds),
    )


def plain_steps(attempts: Sequence[AttemptSteps]) -> PlainSteps:
    """The measured steps of attempts that had as many ranks, without those that are set apart."""
    parts = [_of_attempt(attempt) for attempt in attempts]
    names = ("tokens", "samples", "seconds")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return PlainSteps(
        **joined,
        num_compiled=sum(part.num_compiled for part in parts),
        num_profiled=sum(part.num_profiled for part in parts),
    )


def _of_attempt(attempt: AttemptSteps) -> PlainSteps:
    """Of the rank whose training time is least: what another has more is a wait for what is apart.

    (Where rank 0 saves or evaluates alone, the others wait for it in a phase of training.)
    """
    ranks = [attempt.measured(index) for index in range(len(attempt.ranks))]
    compiled = np.any([rank["compile_s"] > 0 for rank in ranks], axis=0)
    profiled = _is_profiled(attempt, ranks[0]["step"]) & ~compiled
    plain = [rank.compress(~compiled & ~profiled) for rank in ranks]
    trained = [
        rank["step_s"].astype(np.float64) - sum(rank[name] for name in NOT_TRAINING)
        for rank in plain
    ]
    return PlainSteps(
        tokens=_added(plain, "num_tokens"),
        samples=_added(plain, "num_samples"),
        seconds=min(trained, key=lambda values: values.sum()),
        num_compiled=int(compiled.sum()),
        num_profiled=int(profiled.sum()),
    )


def _added(ranks: Sequence[np.ndarray], name: str) -> np.ndarray:
    total: np.ndarray = np.stack([rank[name] for rank in ranks]).sum(axis=0, dtype=np.float64)
    return total


def _is_profiled(attempt: AttemptSteps, steps: np.ndarray) -> np.ndarray:
    """Of each step number (bool), whether a rank of the attempt profiled it, or warmed up for it.

    Such steps are slower than others, and no rank goes on without the one that records.
    """
    found = np.zeros(len(steps), bool)
    for span in (span for timing in attempt.ranks for span in timing.spans):
        if span["name"] == PROFILE_WRITE_SPAN and "first_step" in span:
            first = int(span["first_step"])
            found |= (steps >= first - 1) & (steps < first + int(span["num_steps"]))
    return found
