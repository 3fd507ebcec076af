"""Ranks are compared with those that did the same steps, and blamed for no other node."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_jobs.report.html import training_section
from slurm_jobs.report.inputs import RankTiming, StageInputs
from slurm_jobs.report.rules.training_rules import straggler
from slurm_jobs.report.training_numbers import training_numbers
from slurm_jobs.shared.timings import StepFile
from tests.slurm_jobs.report.fabricate_steps import CREATED, STEP_DTYPE


def rank_steps(
    attempt,
    rank,
    node,
    *,
    own_s,
    wait_s=0.0,
    data_s=0.0,
    back_s=0.0,
    num_ranks=2,
    num_steps=100,
    device="cpu",
):
    """What one rank recorded of an attempt whose steps all take the same time."""
    number = np.arange(100 * (attempt - 1), 100 * (attempt - 1) + num_steps)
    steps = np.zeros(num_steps, STEP_DTYPE)
    steps["step"] = number
    steps["forward_s"], steps["rank_wait_s"], steps["data_wait_s"] = own_s, wait_s, data_s
    steps["backward_s"] = back_s
    steps["step_s"] = own_s + wait_s + data_s + back_s
    steps["start_unix_s"] = CREATED + 1000 * attempt + np.arange(num_steps) * steps["step_s"]
    steps["num_tokens"], steps["loss"] = 1000, 1.0
    metadata = {"device": device, "training": "t", "num_ranks": num_ranks, "node_name": node}
    file = StepFile(metadata=metadata, steps=steps)
    return RankTiming(slice_index=0, attempt=attempt, rank=rank, steps=file, spans=())


def numbers_of(*timings):
    stage = StageInputs(
        name="train", run="train", after={}, num_slices=1, resources={}, attempts=(),
        completions=(), timings=timings,
    )  # fmt: skip
    return training_numbers(stage, (), 5)[0]


@pytest.fixture
def grown():
    """Balanced on 4 ranks, then balanced on 8 with steps half as long."""
    few = [rank_steps(1, r, "n1", own_s=1.9, wait_s=0.1, num_ranks=4) for r in range(4)]
    many = [
        rank_steps(2, r, f"n{r // 4 + 1}", own_s=0.98, wait_s=0.02, num_ranks=8) for r in range(8)
    ]
    return numbers_of(*few, *many)


@pytest.fixture
def moved():
    """Rank 1 was slow on `sick`, and keeps up on `sound`."""
    return numbers_of(
        rank_steps(1, 0, "n1", own_s=1.0, wait_s=1.0),
        rank_steps(1, 1, "sick", own_s=2.0),
        rank_steps(2, 0, "n1", own_s=1.0),
        rank_steps(2, 1, "sound", own_s=1.0),
    )


def test_ranks_of_a_longer_attempt_are_no_stragglers_beside_those_that_joined_later(grown):
    assert grown.straggler.slowest_over_mean == pytest.approx(1.0)
    assert straggler(grown).outcome == "clear"


def test_the_mean_step_counts_every_step_once_however_many_ranks_did_it(grown):
    step_s = sum(phase.seconds for phase in grown.phases)
    assert step_s == pytest.approx(1.5)
    assert step_s == pytest.approx(1 / grown.steps_per_s.value)
    assert sum(phase.share for phase in grown.phases) == pytest.approx(1.0)


def test_the_node_on_which_the_rank_was_slow_is_named_and_no_later_one(moved):
    finding = straggler(moved)
    assert finding.title.startswith("rank 1 on sick holds the others up, most in forward")
    assert "sound" not in finding.next_knob
    # 0.5 s over the mean of 1.5 s in half of the steps, and the mean of 1.0 s in the others
    assert moved.straggler.slowest_over_mean == pytest.approx(1.2)
    assert moved.straggler.phase_excess_s == pytest.approx(0.25)


def test_a_rank_that_ran_on_two_nodes_has_a_row_for_each(moved):
    rows = [(r.rank, r.node, r.num_steps, r.own_excess_s) for r in moved.ranks]
    assert rows == [
        (0, "n1", 190, pytest.approx(-0.25)),
        (1, "sick", 95, pytest.approx(0.5)),
        (1, "sound", 95, pytest.approx(0.0, abs=1e-9)),
    ]
    page = str(training_section(moved))
    assert page.index("rank 1 sick, 95 steps") < page.index("rank 0 n1, 190 steps")
    assert "has a row for each" in page


def test_a_rank_slow_on_every_node_is_found_and_all_of_them_are_named():
    timings = [
        rank_steps(
            attempt, rank, f"n{attempt}-{rank}", own_s=1.0 + 0.2 * rank, wait_s=0.2 - 0.2 * rank
        )
        for attempt in range(1, 6)
        for rank in (0, 1)
    ]
    worst = numbers_of(*timings).straggler
    assert worst.slowest_over_mean == pytest.approx(1.2 / 1.1)
    assert worst.node == "n1-1, n2-1, n3-1 and 2 more nodes"


def test_the_rank_that_waits_for_data_is_named_with_the_node_where_it_did():
    numbers = numbers_of(
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
    assert numbers_of(*whole, lone).straggler.slowest_over_mean == pytest.approx(1.0)
    check = straggler(numbers_of(lone))
    assert check.outcome == "abstained"
    assert check.reason == "no attempt has step records of all its ranks"


def test_a_rank_that_the_others_wait_for_in_their_backward_pass_is_named():
    """Its collectives end everywhere at once: all steps, and all own times, are as long."""
    numbers = numbers_of(
        rank_steps(1, 0, "n1", own_s=1.0, back_s=1.3),
        rank_steps(1, 1, "sick", own_s=1.3, back_s=1.0),
    )
    found = numbers.straggler
    assert (found.rank, found.node, found.phase) == (1, "sick", "forward")
    assert found.slowest_over_mean == pytest.approx(1 + 0.15 / 2.3)
    assert straggler(numbers).title == "rank 1 on sick holds the others up, most in forward (train)"


def test_a_backward_pass_that_is_longer_by_itself_makes_nobody_else_late():
    """Rank 0 has more work in it, and none before: rank 1 waits for it, and is not to blame."""
    numbers = numbers_of(
        rank_steps(1, 0, "n1", own_s=1.0, back_s=1.3),
        rank_steps(1, 1, "n1", own_s=1.0, back_s=1.0, wait_s=0.3),
    )
    assert (numbers.straggler.rank, numbers.straggler.phase) == (0, "backward")


def test_a_gpus_host_that_queues_its_work_more_slowly_is_not_blamed():
    """It launches its forward pass more slowly, and waits less for the device in the backward."""
    numbers = numbers_of(
        rank_steps(1, 0, "n1", own_s=1.0, back_s=1.3, device="cuda"),
        rank_steps(1, 1, "n2", own_s=1.3, back_s=1.0, device="cuda"),
    )
    assert numbers.straggler.slowest_over_mean == pytest.approx(1.0)
