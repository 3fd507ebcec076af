"""The order of samples, whatever the number of ranks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.order import (
    BatchLayout,
    EpochOrder,
    dealt_order,
    epoch_at,
    lanes_of_rank,
    rank_microbatches,
    shuffled_order,
    stream_range,
    whole_batches,
)
from pipeline.data.packing.deal import WINDOW_GROUPS
from slurm_jobs.base.errors import StageConfigError


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


def works(num_packs: int) -> np.ndarray:
    return np.random.default_rng(num_packs).integers(1, 500, num_packs).astype(float)


def orders(num_packs: int, seed: int = 0) -> list[EpochOrder]:
    return [
        shuffled_order(num_packs, seed),
        dealt_order(works(num_packs).__getitem__, num_packs, seed, layout(), alike=True),
    ]


def global_batch(
    step: int, num_ranks: int, num_packs: int, order: EpochOrder, num_microbatches: int = 1
) -> list[int]:
    plan = layout(num_ranks=num_ranks, num_microbatches=num_microbatches)
    return [
        int(number)
        for rank in range(num_ranks)
        for part in rank_microbatches(step, plan, rank, num_packs, order)
        for number in part.packs
    ]


@settings(deadline=None)
@given(num_packs=st.integers(1, 700), num_epochs=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_every_pack_comes_exactly_once_an_epoch(num_packs: int, num_epochs: int, seed: int) -> None:
    for order in orders(num_packs, seed):
        stream, epochs = stream_range(0, num_packs * num_epochs, num_packs, order)
        for epoch in range(num_epochs):
            of_epoch = stream[epoch * num_packs : (epoch + 1) * num_packs]
            assert sorted(of_epoch) == list(range(num_packs))
            assert set(epochs[epoch * num_packs : (epoch + 1) * num_packs]) == {epoch}


@settings(deadline=None)
@given(
    num_packs=st.integers(1, 700),
    start=st.integers(0, 3000),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=8),
)
def test_the_stream_is_the_same_however_it_is_cut(
    num_packs: int, start: int, sizes: list[int]
) -> None:
    for order in orders(num_packs):
        whole, _ = stream_range(start, start + sum(sizes), num_packs, order)
        pieces, at = [], start
        for size in sizes:
            pieces.append(stream_range(at, at + size, num_packs, order)[0])
            at += size
        assert np.array_equal(np.concatenate(pieces), whole)


@settings(deadline=None)
@given(num_packs=st.integers(1, 40), num_steps=st.integers(1, 20))
def test_batches_are_never_short_and_repeat_no_pack_early(num_packs: int, num_steps: int) -> None:
    for order in orders(num_packs):
        seen: Counter[int] = Counter()
        for step in range(num_steps):
            batch = global_batch(step, 2, num_packs, order)
            assert len(batch) == 8
            seen.update(batch)
        counts = [seen[number] for number in range(num_packs)]
        assert max(counts) - min(counts) <= 1


@settings(deadline=None)
@given(step=st.integers(0, 10**6), num_packs=st.integers(1, 700))
def test_global_batch_is_the_same_for_1_2_and_4_ranks(step: int, num_packs: int) -> None:
    for order in orders(num_packs):
        batches = [global_batch(step, num_ranks, num_packs, order) for num_ranks in (1, 2, 4)]
        assert batches[0] == batches[1] == batches[2]
        assert global_batch(step, 2, num_packs, order, num_microbatches=4) == batches[0]


@settings(deadline=None)
@given(epoch=st.integers(0, 50), num_packs=st.integers(8, 700))
def test_packs_of_a_batch_are_neighbours_in_their_window_ordered_by_work(
    epoch: int, num_packs: int
) -> None:
    work = works(num_packs) + np.arange(num_packs) / num_packs  # no two alike
    order = dealt_order(work.__getitem__, num_packs, 3, layout(), alike=True)
    first, last = whole_batches(epoch, num_packs, 8)
    assert (epoch * num_packs + first) % 8 == 0
    assert (last - first) % 8 == 0
    assert first < 8
    assert num_packs - last < 8
    ranks = np.empty(num_packs, dtype=int)
    for start in range(first, last, 8 * WINDOW_GROUPS):
        end = min(start + 8 * WINDOW_GROUPS, last)
        window = order(epoch, start, end)
        ranks[window[np.argsort(work[window], kind="stable")]] = np.arange(end - start) // 8
        assert [len(set(ranks[batch])) for batch in window.reshape(-1, 8)] == [1] * (
            (end - start) // 8
        )


def test_dealing_leaves_little_difference_between_lanes() -> None:
    work = works(4096)
    plan = layout(global_batch_size=64, num_lanes=8)
    for order, most in (
        (dealt_order(work.__getitem__, 4096, 3, plan), 1.002),
        (shuffled_order(4096, 3), 9.0),
    ):
        ratios = []
        for step in range(64):
            packs, _ = stream_range(step * 64, (step + 1) * 64, 4096, order)
            of_lane = work[packs].reshape(8, 8).sum(axis=1)
            ratios.append(of_lane.max() / of_lane.mean())
        assert np.mean(ratios) < most
        if most > 2:
            assert np.mean(ratios) > 1.1  # what dealing saves


def test_epoch_follows_from_the_step() -> None:
    assert epoch_at(step=5, global_batch_size=8, num_packs=12) == 3


def test_lanes_are_shared_out_in_runs() -> None:
    plan = layout(num_ranks=2)
    assert [list(lanes_of_rank(plan, rank)) for rank in (0, 1)] == [[0, 1], [2, 3]]


def test_epochs_and_seeds_have_their_own_permutations() -> None:
    for kind in (0, 1):
        found = [orders(50, seed)[kind](epoch, 0, 50) for seed in (0, 1) for epoch in (0, 1)]
        assert len({tuple(order) for order in found}) == 4
        assert np.array_equal(orders(50, 1)[kind](1, 0, 50), found[-1])


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


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 5), (4090, 4100), (4096, 8192), (100, 9000), (7, 7)]
)
def test_shuffled_order_is_one_permutation_wherever_it_is_begun(start: int, stop: int) -> None:
    order = shuffled_order(9_000, 3)
    whole = order(1, 0, 9_000)
    assert sorted(whole.tolist()) == list(range(9_000))
    assert shuffled_order(9_000, 3)(1, start, stop).tolist() == whole[start:stop].tolist()
