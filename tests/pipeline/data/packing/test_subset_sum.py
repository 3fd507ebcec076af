"""The best subset, compared with trying them all."""

from __future__ import annotations

import tracemalloc
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.packing.subset_sum import fill, fill_within

SIZES = st.lists(st.integers(0, 30), max_size=9)


def best(sizes: list[int], room: int, costs: list[int], cost_room: int) -> int:
    """The greatest sum that fits, of all subsets."""
    found = 0
    for taken in product((0, 1), repeat=len(sizes)):
        size = sum(s for s, t in zip(sizes, taken, strict=True) if t)
        cost = sum(c for c, t in zip(costs, taken, strict=True) if t)
        if size <= room and cost <= cost_room:
            found = max(found, size)
    return found


@settings(max_examples=200, deadline=None)
@given(sizes=SIZES, room=st.integers(0, 90))
def test_what_is_chosen_is_the_best_of_all_subsets(sizes: list[int], room: int) -> None:
    chosen, left = fill(sizes, room)
    assert sorted(set(chosen), reverse=True) == chosen
    assert room - left == sum(sizes[place] for place in chosen) == best(sizes, room, sizes, room)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), sizes=SIZES, room=st.integers(0, 90), cost_room=st.integers(0, 12))
def test_what_is_chosen_keeps_the_second_limit_and_is_the_best_that_does(
    data: st.DataObject, sizes: list[int], room: int, cost_room: int
) -> None:
    costs = data.draw(st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes)))
    chosen, left = fill_within(sizes, room, costs, cost_room)
    assert sorted(set(chosen), reverse=True) == chosen
    assert sum(costs[place] for place in chosen) <= cost_room
    assert room - left == sum(sizes[place] for place in chosen)
    assert room - left == best(sizes, room, costs, cost_room)


def test_the_first_exact_sum_is_taken() -> None:
    assert fill([5, 3, 4, 2, 5], 7) == ([2, 1], 0)
    assert fill_within([5, 3, 4, 2, 5], 7, [1, 1, 1, 1, 1], 2) == ([2, 1], 0)


def test_a_room_of_zero_is_full() -> None:
    assert fill([1, 2], 0) == ([], 0)
    assert fill_within([1, 2], 0, [0, 0], 0) == ([], 0)


def test_rooms_wider_than_a_machine_word_are_exact() -> None:
    sizes = [40_000, 30_001, 50_000, 50_999]
    assert fill(sizes, 111_000) == ([3, 2], 111_000 - 50_000 - 50_999)
    assert fill(sizes, 80_001 + 50_999) == ([3, 2, 1], 0)


def test_memory_follows_the_sizes_and_not_the_room() -> None:
    """A bit for each token of this room would be 125 MB, and a number 8 GB."""
    room = 1_000_000_000
    sizes, costs = [30_000, 0, 20_000], [1, 1, 2]
    tracemalloc.start()
    try:
        filled, within = fill(sizes, room), fill_within(sizes, room, costs, 2)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert filled == ([2, 0], room - 50_000)
    assert within == ([0], room - 30_000)
    assert peak_bytes < 4_000_000
