"""Steps that count for a speed: those that neither compiled nor were profiled.

Checkpoints and evaluation within a step are subtracted from its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_jobs.formats.timings.step_records import NOT_TRAINING, PROFILE_WRITE_SPAN
from slurm_jobs.report.steps.attempt_steps import AttemptSteps


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainSteps:
    """Measured steps of all attempts with the same number of ranks, one number per step."""

    tokens: np.ndarray
    """Sum over all ranks, [num_steps]; the other arrays have the same shape."""
    samples: np.ndarray
    seconds: np.ndarray
    """Without the separated work, of the rank that sets the attempt's time."""
    num_compiled: int
    num_profiled: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Means over the measured steps of a training, without the separated work."""

    tokens_per_s: float
    """Tokens without padding, of all ranks; 0 if not counted."""
    samples_per_s: float
    step_s: float
    """Mean time."""
    num_steps: int


def speed_of(attempts: Sequence[AttemptSteps]) -> Speed | None:
    """Return the speed for `measure`; None if no counted step remains.

    Args:
        attempts: attempts with equal numbers of ranks.
    """
    whole = [a for a in attempts if a.is_whole and a.num_measured]
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
    """Return the measured steps of attempts with equal ranks, without the separated work.

    Their times are those of the rank with the least training time, as others wait for separate
    work: if rank 0 saves or evaluates alone, the others wait for it in a phase of training.
    """
    tokens, samples, seconds = [], [], []
    num_compiled = num_profiled = 0
    for attempt in attempts:
        ranks = [attempt.measured(index) for index in range(len(attempt.ranks))]
        compiled = np.any([rank["compile_s"] > 0 for rank in ranks], axis=0)
        profiled = _is_profiled(attempt, ranks[0]["step"]) & ~compiled
        plain = [rank.compress(~compiled & ~profiled) for rank in ranks]
        trained = []
        for rank in plain:
            apart_s = sum(rank[name] for name in NOT_TRAINING)
            trained.append(rank["step_s"].astype(np.float64) - apart_s)
        tokens.append(np.sum([rank["num_tokens"] for rank in plain], axis=0, dtype=np.float64))
        samples.append(np.sum([rank["num_samples"] for rank in plain], axis=0, dtype=np.float64))
        seconds.append(min(trained, key=lambda values: values.sum()))
        num_compiled += int(compiled.sum())
        num_profiled += int(profiled.sum())
    return PlainSteps(
        tokens=np.concatenate(tokens),
        samples=np.concatenate(samples),
        seconds=np.concatenate(seconds),
        num_compiled=num_compiled,
        num_profiled=num_profiled,
    )


def _is_profiled(attempt: AttemptSteps, steps: np.ndarray) -> np.ndarray:
    """Return for each step (bool) whether a rank profiled it, or warmed up the profiler.

    Such steps are slower, and all ranks wait for the one that records.
    """
    is_profiled = np.zeros(len(steps), bool)
    for span in (span for timing in attempt.ranks for span in timing.spans):
        if span["name"] == PROFILE_WRITE_SPAN and "first_step" in span:
            first = int(span["first_step"])
            is_profiled |= (steps >= first - 1) & (steps < first + int(span["num_steps"]))
    return is_profiled
