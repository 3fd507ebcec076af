"""What every strategy promises, and the rule of each by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.packing.algorithms import STRATEGIES, bfd, ffd, greedy, knapsack
from pipeline.data.packing.budget import PackBudget, Packs
from pipeline.data.packing.lower_bound import fewest_packs
from tests.pipeline.data.packing.lengths import Sized, captions, sized_samples, sums

NO_IMAGES = [0] * 100


def packed(name: str, tokens: np.ndarray, images: np.ndarray, budget: PackBudget) -> Packs:
    return Packs.from_lists(STRATEGIES[name](tokens.tolist(), images.tolist(), budget))


@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=150, deadline=None)
@given(sized=sized_samples())
def test_every_sample_is_in_one_pack_and_no_budget_is_broken(name: str, sized: Sized) -> None:
    tokens, images, budget = sized
    packs = packed(name, tokens, images, budget)
    assert np.array_equal(np.sort(packs.items), np.arange(len(tokens)))
    assert packs.bounds[0] == 0
    assert packs.bounds[-1] == len(tokens)
    assert (np.diff(packs.bounds) > 0).all()
    assert max(sums(packs, tokens)) <= budget.max_tokens
    if budget.max_images is not None:
        assert max(sums(packs, images)) <= budget.max_images


@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=50, deadline=None)
@given(sized=sized_samples())
def test_no_strategy_beats_the_lower_bound(name: str, sized: Sized) -> None:
    tokens, images, budget = sized
    assert len(packed(name, tokens, images, budget)) >= fewest_packs(tokens, images, budget)


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_samples_are_no_packs(name: str) -> None:
    assert STRATEGIES[name]([], [], PackBudget(max_tokens=8, max_images=2)) == []


def test_greedy_begins_a_new_pack_when_the_next_sample_does_not_fit() -> None:
    budget = PackBudget(max_tokens=10, max_images=2)
    assert greedy([6, 4, 1, 9, 1, 1], [0] * 6, budget) == [[0, 1], [2, 3], [4, 5]]
    assert greedy([1, 1, 1], [1, 1, 1], budget) == [[0, 1], [2]]


def test_first_fit_decreasing_takes_the_first_pack_with_room() -> None:
    # 7, 6, 3, 2: of the packs with 7 and with 6, the 3 and then the 2 fit the first; 1 the second.
    budget = PackBudget(max_tokens=10)
    assert ffd([2, 7, 3, 6], NO_IMAGES[:4], budget) == [[1, 2], [3, 0]]
    assert ffd([3, 5, 6], NO_IMAGES[:3], budget) == [[2, 0], [1]]


def test_best_fit_decreasing_takes_the_fullest_pack_with_room() -> None:
    # 6, 5, 4 (fills the first), 3: 5 + 3 rather than a new pack; then 2 fills that one.
    budget = PackBudget(max_tokens=10)
    assert bfd([3, 6, 5, 4, 2], NO_IMAGES[:5], budget) == [[1, 3], [2, 0, 4]]
    # Rooms of 3 and 2: first fit takes the 3, best fit the 2.
    assert ffd([7, 8, 2], NO_IMAGES[:3], budget) == [[1, 2], [0]]
    assert bfd([6, 8, 7, 2], NO_IMAGES[:4], budget) == [[1, 3], [2], [0]]


def test_a_full_image_budget_sends_samples_to_the_next_pack() -> None:
    budget = PackBudget(max_tokens=10, max_images=1)
    for strategy in (ffd, bfd):
        assert strategy([5, 4, 3], [1, 1, 0], budget) == [[0, 2], [1]]


def test_chunks_are_packed_by_themselves() -> None:
    budget = PackBudget(max_tokens=10)
    for strategy in (ffd, bfd):
        found = strategy([6, 6, 4, 4], NO_IMAGES[:4], budget, chunk_size=2)
        assert found == [[0], [1], [2, 3]]


def test_knapsack_fills_the_emptiest_pack_and_has_some_to_spare() -> None:
    # 20 tokens need 2 packs of 10; with 5 to spare each sample gets its own, as nanoVLM's does.
    found = knapsack([5, 4, 4, 3, 2, 1, 1], NO_IMAGES[:7], PackBudget(max_tokens=10))
    assert sorted(found) == [[0], [1], [2], [3], [4], [5], [6]]


def by_nanovlms_rule(
    lengths: list[int], images: list[int], limit: int, most_images: int
) -> list[list[int]]:
    """The rule step by step, as its source has it: all packs sorted for every sample."""
    loads = [0] * (-(-sum(lengths) // limit) + 5)
    counts = [0] * len(loads)
    packs: list[list[int]] = [[] for _ in loads]
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place], reverse=True):
        fits = [
            pack
            for pack in sorted(range(len(loads)), key=lambda pack: loads[pack])
            if loads[pack] + lengths[place] <= limit and counts[pack] + images[place] <= most_images
        ]
        if not fits:
            fits = [len(loads)]
            loads.append(0)
            counts.append(0)
            packs.append([])
        packs[fits[0]].append(place)
        loads[fits[0]] += lengths[place]
        counts[fits[0]] += images[place]
    return sorted(pack for pack in packs if pack)


@settings(max_examples=100, deadline=None)
@given(sized=sized_samples(max_samples=120))
def test_knapsack_makes_the_packs_of_nanovlms_rule(sized: Sized) -> None:
    tokens, images, budget = sized
    if budget.max_tokens * 1024 < tokens.sum():  # more than one chunk
        tokens, images = tokens[:1], images[:1]
    most = int(images.sum()) if budget.max_images is None else budget.max_images
    expected = by_nanovlms_rule(tokens.tolist(), images.tolist(), budget.max_tokens, most)
    assert sorted(knapsack(tokens.tolist(), images.tolist(), budget)) == expected


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_knapsack_collects_so_many_packs_of_tokens_at_a_time(seed: int) -> None:
    tokens, images = captions(600, seed)
    found = knapsack(tokens.tolist(), images.tolist(), PackBudget(max_tokens=4096), num_packs=4)
    firsts = [min(pack) for pack in found]
    lasts = [max(pack) for pack in found]
    # 4 packs of 4,096 tokens are 44 to 62 samples of 266 to 375 tokens.
    assert max(last - first for first, last in zip(firsts, lasts, strict=True)) < 64
