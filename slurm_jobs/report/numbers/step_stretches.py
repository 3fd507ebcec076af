"""Division of a run's steps into few long stretches with nearly independent means. PURE.

Times of consecutive steps are correlated, so a test on single steps claims differences where
there are none. With AR(1) noise of 0.6 over 1,000 steps it does so in 32 % of the cases at a
nominal 5 %. With ten means of long stretches it is 5 % (`benchmarks/statistics.py`).
"""

from __future__ import annotations

import itertools

import numpy as np

NUM_STRETCHES = 10
MIN_BLOCK_STEPS = 20 * NUM_STRETCHES
"""Fewest steps for independent stretches. With the noise above and 5 steps a stretch, equal runs
differ in 11 % of the comparisons, with 20 in 6 % (`benchmarks/statistics.py`)."""


def stretch_speeds(counts: np.ndarray, seconds: np.ndarray) -> tuple[float, ...]:
    """Return the speeds of stretches with equal numbers of steps; empty under `MIN_BLOCK_STEPS`.

    Args:
        counts: work of each step, such as tokens, [num_steps].
        seconds: duration of each step, [num_steps].
    """
    return _speeds(counts, seconds) if len(counts) >= MIN_BLOCK_STEPS else ()


def start_share(counts: np.ndarray, seconds: np.ndarray) -> float | None:
    """Return the speed of the first tenth over the slower quarter of the other nine tenths.

    It is for runs that are too short for independent stretches. Their tenths have a few steps each,
    so one slow tenth is usual, and only a first tenth that is slower than that is reported.

    Args:
        counts: work of each step, such as tokens, [num_steps].
        seconds: duration of each step, [num_steps].

    Returns:
        None with fewer than two steps a tenth, or if a tenth has no count or no time.
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
