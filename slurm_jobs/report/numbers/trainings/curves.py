"""Series over the steps, downsampled so that a page stays small. PURE.

Each point represents a bin of consecutive steps of one attempt.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from slurm_jobs.report.steps.attempt_steps import AttemptSteps
from slurm_jobs.report.values.training_model import Curves

MAX_POINTS = 240
"""Points of a curve: finer than the pixels of a printed chart, and about 20 kB per page."""

MIN_BIN_STEPS = 4
"""A p95 of fewer steps, over two ranks, is the maximum."""


def make_curves(attempts: Sequence[AttemptSteps]) -> Curves | None:
    """Return the curves of one training over all attempts; None if no step counts."""
    lengths = [attempt.num_common for attempt in attempts]
    num_steps = sum(lengths)
    if not num_steps:
        return None
    points: list[tuple[float, ...]] = []
    for attempt, length in zip(attempts, lengths, strict=True):
        if length:
            points.extend(_attempt_points(attempt, length, num_steps))
    step, loss, tokens, p50, p95, most, wait = zip(*points, strict=True)
    return Curves(
        step=step,
        loss=loss,
        tokens_per_s=tokens,
        step_p50_s=p50,
        step_p95_s=p95,
        step_max_s=most,
        data_wait_share=wait,
        resumed_at=tuple(int(a.records[0]["step"][0]) for a in attempts if a.num_common)[1:],
    )


def _attempt_points(
    attempt: AttemptSteps, length: int, num_steps: int
) -> Iterator[tuple[float, ...]]:
    """Yield step, loss, tokens/s, step time p50, p95 and max, data-wait share of each bin."""
    num_bins = max(1, min(length // MIN_BIN_STEPS, round(MAX_POINTS * length / num_steps)))
    edges = np.linspace(0, length, num_bins + 1).astype(np.int64)
    lead = attempt.kept(0)[:length]
    ranks = [attempt.kept(i)[:length] for i in range(len(attempt.ranks))]
    step_s = np.stack([r["step_s"] for r in ranks])
    wait_s = np.stack([r["data_wait_s"] for r in ranks]).sum(axis=0, dtype=np.float64)
    tokens = np.stack([r["num_tokens"] for r in ranks]).sum(axis=0, dtype=np.float64)
    for begin, end in itertools.pairwise(edges):
        part, times = lead[begin:end], step_s[:, begin:end]
        losses = part["loss"][np.isfinite(part["loss"])]
        wall_s = float(part["step_s"].sum(dtype=np.float64))
        p50, p95 = (float(np.percentile(times, percent)) for percent in (50, 95))
        busy_s = float(times.sum(dtype=np.float64))
        yield (
            float(part["step"].mean()),
            float(losses.mean(dtype=np.float64)) if len(losses) else float("nan"),
            float(tokens[begin:end].sum() / wall_s) if wall_s > 0 else float("nan"),
            p50,
            p95,
            float(times.max()),
            float(wait_s[begin:end].sum() / busy_s) if busy_s > 0 else float("nan"),
        )
