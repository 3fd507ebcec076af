"""Speeds of stretches of a run, and Student's t against the tables that every textbook prints."""

import numpy as np
import pytest

from slurm_jobs.base.student_t import two_sided
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


@pytest.mark.parametrize(
    ("confidence", "num_degrees", "expected"),
    [
        *((0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 4, 2.776), (0.95, 10, 2.228)),
        *((0.95, 30, 2.042), (0.95, 120, 1.980), (0.95, 1e6, 1.960)),
        *((0.90, 5, 2.015), (0.99, 3, 5.841), (0.99, 60, 2.660), (0.5, 1, 1.000)),
    ],
)
def test_quantiles_are_those_of_the_tables(confidence, num_degrees, expected):
    assert two_sided(confidence, num_degrees) == pytest.approx(expected, abs=6e-4)


def test_broken_degrees_lie_between_the_whole_ones():
    assert two_sided(0.95, 3) < two_sided(0.95, 2.5) < two_sided(0.95, 2)


@pytest.mark.parametrize(("confidence", "num_degrees"), [(0, 3), (1, 3), (0.95, 0), (0.95, -1)])
def test_what_is_out_of_range_is_refused(confidence, num_degrees):
    with pytest.raises(ValueError, match="degrees of freedom"):
        two_sided(confidence, num_degrees)
