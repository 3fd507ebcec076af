"""A bound is one only if no packing beats it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.packing.budget import PackBudget
from pipeline.data.packing.lower_bound import fewest_packs


def fewest_by_search(sizes: list[int], limit: int) -> int:
    """The optimum, by trying each sample in each pack."""
    best = len(sizes)

    def place(number: int, rooms: list[int]) -> None:
        nonlocal best
        if len(rooms) >= best:
            return
        if number == len(sizes):
            best = len(rooms)
            return
        for pack in range(len(rooms)):
            if rooms[pack] >= sizes[number]:
                place(number + 1, [*rooms[:pack], rooms[pack] - sizes[number], *rooms[pack + 1 :]])
        place(number + 1, [*rooms, limit - sizes[number]])

    place(0, [])
    return best


@settings(max_examples=200, deadline=None)
@given(data=st.data(), limit=st.integers(1, 24))
def test_no_packing_needs_fewer(data: st.DataObject, limit: int) -> None:
    sizes = data.draw(st.lists(st.integers(1, limit), min_size=1, max_size=7))
    tokens, images = np.array(sizes), np.zeros(len(sizes), dtype=int)
    bound = fewest_packs(tokens, images, PackBudget(max_tokens=limit))
    assert -(-sum(sizes) // limit) <= bound <= fewest_by_search(sizes, limit)


@pytest.mark.parametrize(
    ("sizes", "limit", "bound"),
    [
        ([60] * 10, 100, 10),  # larger than half
        ([256] * 16, 300, 16),  # a multiple of what they have in common
        ([90, 20, 20, 20, 20, 20], 100, 2),
        ([70, 70, 40, 40], 100, 3),  # nothing fits beside the large ones
        ([7], 7, 1),
        ([6 * 256 + 40] * 10, 4096, 5),  # two of six tiles and a text, and no third
        ([3 * 256 + 9] * 40, 4096, 8),  # five of three tiles, not five and a third
    ],
)
def test_waste_that_sizes_force_is_counted(sizes: list[int], limit: int, bound: int) -> None:
    images = np.zeros(len(sizes), dtype=int)
    assert fewest_packs(np.array(sizes), images, PackBudget(max_tokens=limit)) == bound


def test_images_bound_the_number_too() -> None:
    tokens, images = np.full(12, 5), np.full(12, 2)
    assert fewest_packs(tokens, images, PackBudget(max_tokens=60)) == 1
    assert fewest_packs(tokens, images, PackBudget(max_tokens=60, max_images=7)) == 4
