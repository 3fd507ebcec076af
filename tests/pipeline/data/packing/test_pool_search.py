"""The search with a pool of samples: how long they wait, and how full packs are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from pipeline.data.packing.budget import PackBudget, Packs
from pipeline.data.packing.lower_bound import fewest_packs
from pipeline.data.packing.pack_statistics import waits
from pipeline.data.packing.pool_search import POOL_SIZE, pack_by_pool
from pipeline.data.packing.sample_costs import measure
from tests.pipeline.data.packing.lengths import Sized, captions, documents, sized_samples

BUDGET = PackBudget(max_tokens=4096)


@settings(max_examples=100, deadline=None)
@given(sized=sized_samples())
def test_a_sample_from_the_pool_leaves_with_one_of_the_next_64_packs(sized: Sized) -> None:
    tokens, images, budget = sized
    packs = Packs.from_lists(pack_by_pool(measure(tokens.tolist(), images.tolist(), budget)))
    assert waits(packs, np.arange(len(tokens))).max_packs < POOL_SIZE == 64


@pytest.mark.parametrize("make", [captions, documents])
def test_the_pools_wait_is_bounded_where_many_packs_are_made(
    make: Callable[[int], tuple[np.ndarray, np.ndarray]],
) -> None:
    tokens, images = make(20_000)
    packs = Packs.from_lists(pack_by_pool(measure(tokens.tolist(), images.tolist(), BUDGET)))
    assert 0 < waits(packs, np.arange(len(tokens))).max_packs < POOL_SIZE


def test_packs_that_hold_more_samples_than_the_pool_are_filled_too() -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    tokens = generator.integers(100, 500, 30_000)
    budget = PackBudget(max_tokens=131_072)
    packs = pack_by_pool(measure(tokens.tolist(), [0] * len(tokens), budget))
    assert len(packs) <= fewest_packs(tokens, np.zeros_like(tokens), budget) + 1
