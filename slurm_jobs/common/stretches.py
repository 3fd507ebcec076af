"""A run's steps as a few long stretches, whose means are nearly independent: PURE.

Step times follow each other (a slow one comes beside slow ones), so that a test on single steps
claims differences where there are none: 32 % of the time at a nominal 5 % with AR(1) noise of 0.6
over 1,000 steps; of ten means of long stretches it is 5 % (`benchmarks/statistics.py`).
"""

from __future__ import annotations

import itertools

import numpy as np

NUM_STRETCHES = 10
MIN_STEPS = 20 * NUM_STRETCHES
"""Fewer make stretches that depend on each other: with the noise above and 5 steps a stretch, equal
runs differ in 11 % of the comparisons, with 20 in 6 % (`benchmarks/statistics.py`)."""


def stretch_speeds(counts: np.ndarray, seconds: np.ndarray) -> tuple[float, ...]:
    """Counts a second of stretches of equal numbers of steps; empty with fewer than `MIN_STEPS`.

    Args:
        counts: what each step worked on, such as tokens, [num_steps].
        seconds: what it took, [num_steps].
    """
    return _speeds(counts, seconds) if len(counts) >= MIN_STEPS else ()


def start_share(counts: np.ndarray, seconds: np.ndarray) -> float | None:
    """The speed of the first tenth over the slower quarter of the other nine tenths.

    Of runs that are too short for independent stretches: their tenths have a few steps each, so
    that a slow one of them is usual, and the first must be slower than that to be told.

    Args:
        counts: what each step worked on, such as tokens, [num_steps].
        seconds: what it took, [num_steps].

    Returns:
        None with fewer than two steps a tenth, or where a tenth has no count or no time.
    """
    speeds = _speeds(counts, seconds) if len(counts) >= 2 * NUM_STRETCHES else ()
    if not speeds:
        return None
    others = sorted(speeds[1:])
    return speeds[0] / others[len(others) // 4]


def _speeds(counts: np.ndarray, seconds: np.ndarray) -> tuple[float, ...]:
    bounds = np.linspace(0, len(counts), NUM_STRETCHES + 1).astype(int)
    sums = [
        (float(counts[a:b].sum(dtype=np.float64)), float(seconds[a:b].sum(dtype=np.float64)))
        for a, b in itertools.pairwise(bounds)
    ]
    if any(count <= 0 or time_s <= 0 for count, time_s in sums):
        return ()
    return tuple(count / time_s for count, time_s in sums)
