"""What fits no pack, and is said so."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pipeline.data.packing import budget as module
from pipeline.data.packing.budget import (
    OverBudgetError,
    PackBudget,
    Packs,
    check_sizes,
    item_type,
    join_packs,
    too_large,
)

TOKENS = np.array([10, 101, 50, 300, 7])
IMAGES = np.array([1, 0, 9, 2, 0])
BUDGET = PackBudget(max_tokens=100, max_images=4)


def test_samples_above_the_budget_are_counted_and_the_largest_is_named() -> None:
    with pytest.raises(OverBudgetError) as caught:
        check_sizes(TOKENS, IMAGES, BUDGET)
    assert str(caught.value) == (
        "2 of 5 samples have more than max_tokens = 100 tokens, the largest has 300; "
        "1 of 5 samples have more than max_images = 4 images, the largest has 9"
    )
    assert caught.value.needed == {"max_tokens": 300, "max_images": 9}
    assert caught.value.number == 2


def test_what_is_too_large_can_be_left_out() -> None:
    large = too_large(TOKENS, IMAGES, BUDGET)
    assert large.tolist() == [False, True, True, True, False]
    check_sizes(TOKENS, IMAGES, BUDGET, ~large)


def test_without_an_image_budget_images_are_not_counted() -> None:
    budget = PackBudget(max_tokens=300)
    assert not too_large(TOKENS, IMAGES, budget).any()
    check_sizes(TOKENS, IMAGES, budget)


def test_a_sample_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="1 samples have no tokens, the first is number 1"):
        check_sizes(np.array([3, 0]), np.array([0, 0]), BUDGET)


def test_sizes_are_checked_in_memory_that_does_not_grow_with_the_samples() -> None:
    tokens = np.broadcast_to(np.int32(5), 16 << 20)
    tracemalloc.start()
    try:
        check_sizes(tokens, tokens, PackBudget(max_tokens=100, max_images=9))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_problems_are_counted_over_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_SIZE", 2)
    sizes, nothing = np.array([7, 400, 500, 7, 500, 301, 999]), np.zeros(7, dtype=int)
    keep = np.array([True] * 6 + [False])
    with pytest.raises(ValueError, match=r"^4 of 6 .* has 500$"):
        check_sizes(sizes, nothing, PackBudget(max_tokens=300), keep)
    with pytest.raises(ValueError, match="3 samples have no tokens, the first is number 3"):
        check_sizes(np.array([1, 1, 1, 0, 0, 1, 0]), nothing, BUDGET)


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PackBudget(max_tokens=0)
    with pytest.raises(ValueError, match="at least 1"):
        PackBudget(max_tokens=1, max_images=0)


def test_joined_packs_are_those_of_the_parts_in_their_order() -> None:
    first = Packs(bounds=np.array([0, 2, 3]), items=np.array([5, 1, 0], dtype=np.int32))
    empty = Packs(bounds=np.array([0]), items=np.zeros(0, dtype=np.int32))
    last = Packs(bounds=np.array([0, 2]), items=np.array([9, 8], dtype=np.int32))
    joined = join_packs([first, empty, last])
    assert [joined.pack(number).tolist() for number in range(len(joined))] == [[5, 1], [0], [9, 8]]
    assert joined.bounds.dtype == np.int64
    assert joined.items.dtype == np.int32
    assert len(join_packs([])) == 0


def test_numbers_of_samples_are_wide_where_they_must_be() -> None:
    assert item_type(2**31 - 1) == np.int32
    assert item_type(2**31) == np.int64


def test_some_returns_the_packs_of_the_given_numbers() -> None:
    packs = Packs(
        bounds=np.array([0, 2, 3, 6], dtype=np.int64), items=np.array([5, 3, 9, 1, 0, 2], np.int32)
    )
    found = packs.some(np.array([2, 0, 2]))
    assert [found.pack(number).tolist() for number in range(3)] == [[1, 0, 2], [5, 3], [1, 0, 2]]
    assert len(packs.some(np.array([], dtype=np.int64))) == 0
