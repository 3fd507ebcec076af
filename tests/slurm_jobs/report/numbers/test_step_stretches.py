"""Speeds of stretches of a run."""

import numpy as np
import pytest

from slurm_jobs.report.numbers.step_stretches import (
    MIN_BLOCK_STEPS,
    NUM_STRETCHES,
    start_share,
    stretch_speeds,
)


def test_stretches_together_are_the_run():
    counts = np.arange(1, 504)
    speeds = stretch_speeds(counts, np.full(503, 0.5))
    assert len(speeds) == NUM_STRETCHES
    assert list(speeds) == sorted(speeds)  # in the order of the steps
    bounds = np.linspace(0, 503, NUM_STRETCHES + 1).astype(int)
    whole = sum(s * 0.5 * n for s, n in zip(speeds, np.diff(bounds), strict=True))
    assert whole == pytest.approx(counts.sum())


def test_too_few_steps_give_no_stretches():
    assert stretch_speeds(np.ones(MIN_BLOCK_STEPS - 1), np.ones(MIN_BLOCK_STEPS - 1)) == ()
    assert len(stretch_speeds(np.ones(MIN_BLOCK_STEPS), np.ones(MIN_BLOCK_STEPS))) == NUM_STRETCHES


def test_a_stretch_without_a_count_or_time_gives_none():
    assert stretch_speeds(np.zeros(100), np.ones(100)) == ()
    assert stretch_speeds(np.ones(100), np.zeros(100)) == ()


def test_a_slow_start_is_distinguished_from_recurring_waits():
    ones, slow_start, waits = np.ones(150), np.ones(150), np.ones(150)
    slow_start[:20] = 6.0
    waits[::5] = 6.0
    assert start_share(ones, ones) == pytest.approx(1.0)
    assert start_share(ones, slow_start) == pytest.approx(1 / 6)
    assert start_share(ones, waits) == pytest.approx(1.0)
    assert start_share(ones[:19], ones[:19]) is None
