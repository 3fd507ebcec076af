"""Padding by the rule of each strategy, and waits."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.data.packing.budget import PackBudget, Packs
from pipeline.data.packing.pack_statistics import padding, waits

TOKENS = np.array([4, 6, 10, 3])
IMAGES = np.zeros(4, dtype=int)
BUDGET = PackBudget(max_tokens=10)


def test_packs_are_padded_to_the_budget() -> None:
    packs = Packs(bounds=np.array([0, 2, 3, 4]), items=np.array([0, 1, 2, 3]))
    found = padding(packs, TOKENS, IMAGES, budget=BUDGET)
    assert (found.num_packs, found.num_tokens, found.num_places) == (3, 23, 30)
    assert found.share == pytest.approx(7 / 30)
    assert found.least_num_packs == 3
    assert found.least_share == pytest.approx(7 / 30)


def test_single_samples_are_padded_to_the_longest_of_their_batch() -> None:
    packs = Packs(bounds=np.arange(5), items=np.array([3, 0, 1, 2]))
    assert padding(packs, TOKENS, IMAGES, budget=BUDGET, batch_size=2).num_places == 2 * 4 + 2 * 10
    assert padding(packs, TOKENS, IMAGES, budget=BUDGET, batch_size=3).num_places == 3 * 6 + 10
    assert padding(packs, TOKENS, IMAGES, budget=BUDGET).num_places == 40


def test_samples_that_are_left_out_count_for_nothing() -> None:
    packs = Packs(bounds=np.array([0, 1]), items=np.array([2]))
    found = padding(packs, TOKENS, IMAGES, budget=BUDGET)
    assert (found.num_tokens, found.num_places, found.least_num_packs) == (10, 10, 1)


def test_waits_are_counted_from_the_place_in_the_order() -> None:
    order = np.array([7, 5, 3, 1])
    packs = Packs(bounds=np.array([0, 2, 3, 4]), items=np.array([5, 3, 1, 7]))
    found = waits(packs, order)
    assert (found.max_samples, found.max_packs) == (3, 2)  # 7 was first, and came last
    assert found.mean_samples == 3 / 4
    assert waits(packs, packs.items).max_samples == 0
