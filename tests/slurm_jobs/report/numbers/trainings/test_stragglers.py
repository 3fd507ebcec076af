"""Ranks are compared with those that did the same steps, and blamed for no other node."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_jobs.report.rules.training.straggler import straggler
from tests.slurm_jobs.report.builders import rank_timing, training_of
from tests.slurm_jobs.report.fabricate_run import CREATED, STEP_DTYPE


def rank_steps(attempt, rank, node, *, own_s, wait_s=0.0, data_s=0.0, back_s=0.0, **said):
    """What one rank recorded of an attempt whose 100 steps all take the same time."""
    steps = np.zeros(100, STEP_DTYPE)
    steps["step"] = np.arange(100) + 100 * (attempt - 1)
    steps["forward_s"], steps["rank_wait_s"], steps["data_wait_s"] = own_s, wait_s, data_s
    steps["backward_s"] = back_s
    steps["step_s"] = own_s + wait_s + data_s + back_s
    steps["start_unix_s"] = CREATED + 1000 * attempt + np.arange(100) * steps["step_s"]
    steps["num_tokens"], steps["loss"] = 1000, 1.0
    said = {"device": "cpu", "training": "t", "num_ranks": 2, "node_name": node, **said}
    return rank_timing(attempt, rank, steps, **said)


@pytest.fixture
def grown():
    """Balanced on 4 ranks, then balanced on 8 with steps half as long."""
    few = [rank_steps(1, r, "n1", own_s=1.9, wait_s=0.1, num_ranks=4) for r in range(4)]
    many = [
        rank_steps(2, r, f"n{r // 4 + 1}", own_s=0.98, wait_s=0.02, num_ranks=8) for r in range(8)
    ]
    return training_of(*few, *many)


@pytest.fixture
def moved():
    """Rank 1 was slow on `sick`, and keeps up on `sound`."""
    return training_of(
        rank_steps(1, 0, "n1", own_s=1.0, wait_s=1.0),
        rank_steps(1, 1, "sick", own_s=2.0),
        rank_steps(2, 0, "n1", own_s=1.0),
        rank_steps(2, 1, "sound", own_s=1.0),
    )


def test_ranks_of_a_longer_attempt_are_no_stragglers_beside_later_ones(grown):
    assert grown.straggler.slowest_over_mean == pytest.approx(1.0)
    assert straggler(grown).outcome == "clear"


def test_the_mean_step_counts_every_step_once_however_many_ranks_did_it(grown):
    step_s = sum(phase.seconds for phase in grown.phases)
    assert step_s == pytest.approx(1.5)
    assert step_s == pytest.approx(1 / grown.steps_per_s.value)
    assert sum(phase.share for phase in grown.phases) == pytest.approx(1.0)


def test_the_node_on_which_the_rank_was_slow_is_named_and_no_later_one(moved):
    finding = straggler(moved)
    assert finding.title.startswith("rank 1 on sick slows down the others, most in forward")
    assert "sound" not in finding.next_knob
    # 0.5 s over the mean of 1.5 s in half of the steps, and the mean of 1.0 s in the others
    assert moved.straggler.slowest_over_mean == pytest.approx(1.2)
    assert moved.straggler.phase_excess_s == pytest.approx(0.25)


def test_a_rank_that_ran_on_two_nodes_has_a_row_for_each(moved):
    rows = [(r.rank, r.node, r.attempts, r.num_steps, r.own_excess_s) for r in moved.ranks]
    assert rows == [
        (0, "n1", (1, 2), 190, pytest.approx(-0.25)),
        (1, "sick", (1,), 95, pytest.approx(0.5)),
        (1, "sound", (2,), 95, pytest.approx(0.0, abs=1e-9)),
    ]


def test_a_rank_slow_on_every_node_is_found_and_all_of_them_are_named():
    timings = [
        rank_steps(
            attempt, rank, f"n{attempt}-{rank}", own_s=1.0 + 0.2 * rank, wait_s=0.2 - 0.2 * rank
        )
        for attempt in range(1, 6)
        for rank in (0, 1)
    ]
    worst = training_of(*timings).straggler
    assert worst.slowest_over_mean == pytest.approx(1.2 / 1.1)
    assert worst.node == "n1-1, n2-1, n3-1 and 2 more nodes"


def test_the_rank_that_waits_for_data_is_named_with_the_node_where_it_did():
    numbers = training_of(
        rank_steps(1, 0, "n1", own_s=1.0, wait_s=0.4),
        rank_steps(1, 1, "slow-disk", own_s=1.0, data_s=0.4),
        rank_steps(2, 0, "n1", own_s=1.0),
        rank_steps(2, 1, "n2", own_s=1.0),
    )
    worst = numbers.straggler
    assert (worst.data_rank, worst.data_node) == (1, "slow-disk")
    assert worst.data_excess_s == pytest.approx(0.1)


def test_an_attempt_that_lacks_a_rank_is_compared_with_nothing():
    whole = [rank_steps(1, rank, "n1", own_s=1.0) for rank in (0, 1)]
    lone = rank_steps(2, 1, "n2", own_s=3.0)
    assert training_of(*whole, lone).straggler.slowest_over_mean == pytest.approx(1.0)
    check = straggler(training_of(lone))
    assert check.outcome == "abstained"
    assert check.reason == "no attempt has step records of all its ranks"


@pytest.mark.parametrize(
    ("first", "second", "blamed", "over_mean"),
    [
        pytest.param(
            {"own_s": 1.0, "back_s": 1.3}, {"own_s": 1.3, "back_s": 1.0},
            (1, "sick", "forward"), 1 + 0.15 / 2.3,
            id="all wait in their backward pass, which ends everywhere at once",
        ),
        pytest.param(
            {"own_s": 1.0, "back_s": 1.3}, {"own_s": 1.0, "back_s": 1.0, "wait_s": 0.3},
            (0, "n1", "backward"), 1 + 0.15 / 2.15,
            id="more work in the backward pass, none before",
        ),
        pytest.param(
            {"own_s": 1.0, "back_s": 1.3, "device": "cuda"},
            {"own_s": 1.3, "back_s": 1.0, "device": "cuda"},
            None, 1.0,
            id="a host that queues a GPU's work more slowly waits less for the device",
        ),
    ],
)  # fmt: skip
def test_the_rank_that_makes_the_others_late_is_blamed(first, second, blamed, over_mean):
    numbers = training_of(rank_steps(1, 0, "n1", **first), rank_steps(1, 1, "sick", **second))
    found = numbers.straggler
    assert found.slowest_over_mean == pytest.approx(over_mean)
    if blamed:
        assert (found.rank, found.node, found.phase) == blamed
        title = "rank {} on {} slows down the others, most in {} (train)"
        assert straggler(numbers).title == title.format(*blamed)
