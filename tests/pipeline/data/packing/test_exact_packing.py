"""The default strategy: how close it comes, and which search it takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from pipeline.data.packing.algorithms import bfd, ffd, knapsack
from pipeline.data.packing.budget import PackBudget, Packs
from pipeline.data.packing.exact_packing import exact, windows_are_better
from pipeline.data.packing.lower_bound import fewest_packs
from pipeline.data.packing.pool_search import pack_by_pool
from pipeline.data.packing.sample_costs import Measures, measure
from pipeline.data.packing.window_search import pack_by_windows
from tests.pipeline.data.packing.lengths import (
    Sized,
    captions,
    documents,
    sized_samples,
    sums,
)

BUDGET = PackBudget(max_tokens=4096)
Search = Callable[[Measures], list[list[int]]]


def share_of_padding(num_packs: int, tokens: np.ndarray) -> float:
    return 1 - int(tokens.sum()) / (num_packs * 4096)


def test_short_samples_are_packed_without_a_gap() -> None:
    tokens, images = captions(20_000)
    packs = exact(tokens.tolist(), images.tolist(), BUDGET)
    assert not windows_are_better(tokens.tolist(), images.tolist(), BUDGET)
    assert len(packs) <= fewest_packs(tokens, images, BUDGET) + 1


def test_long_samples_are_packed_most_closely_by_windows() -> None:
    tokens, images = documents(20_000)
    lists = tokens.tolist(), images.tolist(), BUDGET
    assert windows_are_better(*lists)
    found = share_of_padding(len(exact(*lists)), tokens)
    assert found < share_of_padding(fewest_packs(tokens, images, BUDGET), tokens) + 0.005
    assert found < min(share_of_padding(len(f(*lists)), tokens) for f in (ffd, bfd, knapsack))


def test_where_images_are_scarce_packs_are_full_of_images() -> None:
    tokens, images = captions(20_000)
    budget = PackBudget(max_tokens=4096, max_images=12)
    packs = Packs.from_lists(exact(tokens.tolist(), images.tolist(), budget))
    assert len(packs) == -(-20_000 // 12)
    assert set(sums(packs, images)[:-1]) == {12}


def test_where_images_are_scarce_samples_without_any_fill_the_rest() -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    images = generator.integers(0, 2, 6000) * 4
    tokens = np.where(images > 0, 100, generator.integers(50, 300, 6000))
    budget = PackBudget(max_tokens=1000, max_images=8)
    for search in (pack_by_pool, pack_by_windows):
        packs = Packs.from_lists(search(measure(tokens.tolist(), images.tolist(), budget)))
        texts_and_images = [
            (int((images[packs.pack(n)] == 0).sum()), int(images[packs.pack(n)].sum()))
            for n in range(len(packs))
        ]
        assert len(packs) <= 1.01 * fewest_packs(tokens, images, budget)
        mixed = sum(1 for texts, found in texts_and_images if texts and found)
        assert mixed > len(packs) / 3


@pytest.mark.parametrize("search", [pack_by_pool, pack_by_windows])
@settings(max_examples=150, deadline=None)
@given(sized=sized_samples())
def test_either_search_packs_every_sample_once_within_the_budget(
    search: Search, sized: Sized
) -> None:
    tokens, images, budget = sized
    packs = Packs.from_lists(search(measure(tokens.tolist(), images.tolist(), budget)))
    assert np.array_equal(np.sort(packs.items), np.arange(len(tokens)))
    assert max(sums(packs, tokens)) <= budget.max_tokens
    if budget.max_images is not None:
        assert max(sums(packs, images)) <= budget.max_images


def test_equal_lengths_are_packed_in_their_order() -> None:
    packs = exact([1024] * 1000, [0] * 1000, BUDGET)
    assert [sorted(pack) for pack in packs] == [[n, n + 1, n + 2, n + 3] for n in range(0, 1000, 4)]
