"""Global batches whose lanes have equal work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.order import BatchLayout, dealt_order
from pipeline.data.packing.budget import PackBudget, join_packs
from pipeline.data.packing.deal import deal_by_work
from pipeline.data.packing.pack_order import pack_order
from pipeline.data.packing.work_model import pack_work, work_model
from tests.pipeline.data.packing.lengths import captions, documents


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def slowest_over_mean(work: np.ndarray, group_size: int, num_lanes: int) -> float:
    """Of lanes, the mean over all groups."""
    lanes = work.reshape(-1, num_lanes, group_size // num_lanes).sum(axis=2)
    return float((lanes.max(axis=1) / lanes.mean(axis=1)).mean())


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 6), st.integers(1, 5)),
    seed=st.integers(0, 2**32),
    alike=st.booleans(),
    num_values=st.sampled_from([1, 3, 10**9]),
)
def test_every_pack_is_dealt_once(
    sizes: tuple[int, int, int], seed: int, alike: bool, num_values: int
) -> None:
    num_groups, num_lanes, lane_size = sizes
    group_size = num_lanes * lane_size
    work = generator(seed).integers(1, num_values + 1, num_groups * group_size).astype(np.float64)
    dealt = deal_by_work(
        work, group_size=group_size, num_lanes=num_lanes, words=[seed], alike=alike
    )
    assert np.array_equal(np.sort(dealt), np.arange(len(work)))
    again = deal_by_work(
        work, group_size=group_size, num_lanes=num_lanes, words=[seed], alike=alike
    )
    assert np.array_equal(dealt, again)


@pytest.fixture(scope="module", params=[captions, documents])
def work_of_packs(request: pytest.FixtureRequest) -> np.ndarray:
    """Of packs in a random order."""
    tokens, images = request.param(65_536)
    packs = join_packs(
        pack_order(tokens, images, budget=PackBudget(max_tokens=4096), strategy="exact", words=[0])
    )
    model = work_model(
        hidden_size=1024, num_patches=729, vision_parameters=4e8, language_parameters=5e8
    )
    return generator().permutation(pack_work(packs, tokens, images, model))


@pytest.mark.parametrize("num_ranks", [8, 64])
@pytest.mark.parametrize("lane_size", [1, 4])
def test_the_slowest_rank_has_one_percent_more_than_the_mean_at_most(
    work_of_packs: np.ndarray, lane_size: int, num_ranks: int
) -> None:
    work = work_of_packs
    group_size = num_ranks * lane_size
    layout = BatchLayout(
        global_batch_size=group_size, num_lanes=num_ranks, num_ranks=num_ranks, num_microbatches=1
    )
    order = dealt_order(work.__getitem__, len(work), 0, layout)
    dealt = order(0, 0, len(work) // group_size * group_size)
    assert slowest_over_mean(work[dealt], group_size, num_ranks) <= 1.01


def test_lanes_of_several_packs_are_heavy_and_light_ones() -> None:
    work = np.exp(generator().normal(0, 0.2, 16 * 64))
    dealt = work[deal_by_work(work, group_size=64, num_lanes=16, words=[1])]
    assert slowest_over_mean(work, 64, 16) > 1.15
    assert slowest_over_mean(dealt, 64, 16) < 1.01
    # Groups are more even than random ones are, too.
    spread = dealt.reshape(16, 64).mean(axis=1).std() / work.reshape(16, 64).mean(axis=1).std()
    assert spread < 0.5


def test_samples_dealt_alike_are_of_similar_length_within_a_group() -> None:
    lengths = np.exp(generator().normal(5, 1, 32 * 64))
    dealt = lengths[deal_by_work(lengths, group_size=64, num_lanes=8, words=[1], alike=True)]
    groups = dealt.reshape(-1, 64)
    padded = (groups.max(axis=1) * 64).sum()
    random = (lengths.reshape(-1, 64).max(axis=1) * 64).sum()
    assert random > 5 * lengths.sum()
    assert padded < 1.4 * lengths.sum()
    assert slowest_over_mean(dealt, 64, 8) < 1.03


def test_what_comes_when_is_shuffled_by_the_words() -> None:
    work = np.arange(1, 32 * 8 + 1, dtype=np.float64)
    orders = [deal_by_work(work, group_size=8, num_lanes=8, words=words) for words in ([0], [1])]
    for order in orders:
        groups = work[order].reshape(32, 8)
        assert sorted(groups.min(axis=1)) == list(range(1, 257, 8))  # runs of the sorted window
        assert abs(np.corrcoef(groups.mean(axis=1), np.arange(32))[0, 1]) < 0.6
        assert abs(np.corrcoef(groups.ravel() % 8, np.tile(np.arange(8), 32))[0, 1]) < 0.3
    assert not np.array_equal(*orders)


def test_the_deal_of_an_earlier_version_is_kept() -> None:
    # A resumed training depends on it: never change these numbers.
    work = np.array([5.0, 1, 4, 4, 2, 9, 3, 7])
    assert deal_by_work(work, group_size=4, num_lanes=2, words=[3, 1]).tolist() == [
        1,
        5,
        4,
        7,
        6,
        0,
        3,
        2,
    ]
    alike = deal_by_work(work, group_size=4, num_lanes=2, words=[3], alike=True)
    assert alike.tolist() == [1, 3, 4, 6, 0, 7, 5, 2]


@pytest.mark.parametrize(
    ("size", "group", "lanes"), [(9, 4, 2), (8, 4, 3), (0, 4, 2), (3, 4, 2), (8, 0, 1)]
)
def test_sizes_that_do_not_divide_each_other_are_refused(size: int, group: int, lanes: int) -> None:
    with pytest.raises(ValueError, match="each must be a multiple of the next"):
        deal_by_work(np.ones(size), group_size=group, num_lanes=lanes, words=[0])
