"""The order of samples, whatever the number of ranks."""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.order import (
    BatchLayout,
    epoch_order,
    lanes_of_rank,
    position_at,
    rank_microbatches,
    stream_range,
)
from slurm_jobs.common.errors import StageConfigError


def layout(
    *,
    global_batch_size: int = 8,
    num_lanes: int = 4,
    num_ranks: int = 1,
    num_microbatches: int = 1,
) -> BatchLayout:
    return BatchLayout(
        global_batch_size=global_batch_size,
        num_lanes=num_lanes,
        num_ranks=num_ranks,
        num_microbatches=num_microbatches,
    )


def order_of(num_samples: int, seed: int = 0) -> functools.partial:
    return functools.partial(epoch_order, num_samples, seed)


def global_batch(step: int, num_ranks: int, num_samples: int, num_microbatches: int = 1) -> list:
    plan = layout(num_ranks=num_ranks, num_microbatches=num_microbatches)
    return [
        int(number)
        for rank in range(num_ranks)
        for part in rank_microbatches(step, plan, rank, num_samples, order_of(num_samples))
        for number in part
    ]


@given(num_samples=st.integers(1, 60), num_epochs=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_every_sample_comes_exactly_once_an_epoch(
    num_samples: int, num_epochs: int, seed: int
) -> None:
    stream = stream_range(0, num_samples * num_epochs, num_samples, order_of(num_samples, seed))
    for epoch in range(num_epochs):
        numbers = stream[epoch * num_samples : (epoch + 1) * num_samples]
        assert sorted(numbers) == list(range(num_samples))


@given(num_samples=st.integers(1, 40), num_steps=st.integers(1, 20))
def test_batches_are_never_short_and_repeat_no_sample_early(
    num_samples: int, num_steps: int
) -> None:
    seen = Counter()
    for step in range(num_steps):
        batch = global_batch(step, 2, num_samples)
        assert len(batch) == 8
        seen.update(batch)
    counts = [seen[number] for number in range(num_samples)]
    assert max(counts) - min(counts) <= 1


@given(step=st.integers(0, 10**6), num_samples=st.integers(1, 50))
def test_global_batch_is_the_same_for_1_2_and_4_ranks(step: int, num_samples: int) -> None:
    batches = [global_batch(step, num_ranks, num_samples) for num_ranks in (1, 2, 4)]
    assert batches[0] == batches[1] == batches[2]
    assert global_batch(step, 2, num_samples, num_microbatches=4) == batches[0]


def test_position_follows_from_the_step() -> None:
    position = position_at(step=5, global_batch_size=8, num_samples=12)
    assert (position.epoch, position.offset) == (3, 4)


def test_lanes_are_shared_out_in_runs() -> None:
    plan = layout(num_ranks=2)
    assert [list(lanes_of_rank(plan, rank)) for rank in (0, 1)] == [[0, 1], [2, 3]]


def test_epochs_and_seeds_have_their_own_permutations() -> None:
    orders = [epoch_order(50, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert np.array_equal(epoch_order(50, 1, 1), orders[-1])


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"global_batch_size": 9}, "global_batch_size is 9 and num_lanes is 4"),
        ({"num_ranks": 3}, "num_lanes is 4 and the number of ranks is 3"),
        ({"num_ranks": 4, "num_microbatches": 3}, "is 2 and num_microbatches is 3"),
    ],
)
def test_sizes_that_do_not_divide_are_named(sizes: dict[str, int], words: str) -> None:
    with pytest.raises(StageConfigError, match=words):
        layout(**sizes)
