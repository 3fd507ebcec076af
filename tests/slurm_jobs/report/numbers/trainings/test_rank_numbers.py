"""Phases and waits of the ranks, and what they cost at most."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slurm_jobs.report.rules.training.meetings import meetings
from tests.slurm_jobs.report.builders import make_steps
from tests.slurm_jobs.report.numbers.trainings.made_trainings import numbers_of


def of_two_ranks(num_steps=60):
    return [make_steps(num_steps, rank=rank, num_ranks=2) for rank in (0, 1)]


def test_phases_add_up_to_the_whole_step_over_all_ranks_and_for_each(report_of):
    numbers = report_of().training[0]
    assert sum(p.share for p in numbers.phases) == pytest.approx(1.0)
    for rank in numbers.ranks:
        assert sum(rank.phases_s.values()) == pytest.approx(rank.step_mean_s)


def test_time_that_no_phase_recorded_shows_as_unexplained():
    steps = make_steps(60)
    steps["step_s"] += 0.2
    (found,) = [p for p in numbers_of([[steps]]).phases if p.kind == "unexplained"]
    assert found.seconds == pytest.approx(0.203, rel=1e-3)


def test_a_ceiling_counts_in_each_step_the_rank_that_waits_longest_in_it():
    ranks = of_two_ranks()
    for rank, steps in enumerate(ranks):
        steps["step_s"] = 1.0
        steps["data_wait_s"] = np.where(steps["step"] % 2 == rank, 0.6, 0.0)
    numbers = numbers_of([ranks])
    assert numbers.critical_shares["data_wait"] == pytest.approx(0.6)
    assert next(p.share for p in numbers.phases if p.kind == "data_wait") == pytest.approx(0.3)


def test_ranks_that_wait_in_turn_have_a_ceiling_with_an_end():
    """They do not meet in every step: each has its long steps where the other has short ones."""
    ranks = of_two_ranks()
    for rank, steps in enumerate(ranks):
        waits = steps["step"] % 2 == rank
        steps["step_s"] = np.where(waits, 1.0, 0.1)
        steps["data_wait_s"] = np.where(waits, 0.9, 0.0)
    shares = numbers_of([ranks]).critical_shares
    assert shares["data_wait"] == pytest.approx(0.9)
    assert max(shares.values()) <= 1


@pytest.mark.parametrize(("is_apart", "share"), [(True, 0.04), (False, 0.34)])
def test_the_price_of_an_exchange_is_the_wait_of_the_last_rank(is_apart, share):
    """Rank 0 is last for the batch, rank 1 before the update, each by 0.3 s of 1 s.

    Each exchange takes 0.02 s by itself. Older records have both together, and the rule says so.
    """
    ranks = of_two_ranks()
    for steps, first_s in zip(ranks, (0.02, 0.32), strict=True):
        steps["step_s"], steps["rank_wait_s"] = 1.0, 0.34
        steps["rank_wait_data_s"] = first_s if is_apart else math.nan
    numbers = numbers_of([ranks])
    assert (numbers.meeting_share, numbers.meetings_apart) == (pytest.approx(share), is_apart)
    found = meetings(numbers)
    if is_apart:
        assert found.outcome == "clear"
    else:
        old = "medium: these records, of an older version, combine"
        assert found.confidence.startswith(old)
