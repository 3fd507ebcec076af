"""Default strategy: packs that are filled exactly, by the search that suits the lengths.

Where samples are much smaller than a pack, a pool of the oldest samples fills packs to the last
token and nearly keeps their order. Where few samples fill a pack, the pool uses up the samples
that fit and keeps the rest; a window sees enough of both. A trial on the first samples selects
the search.
"""

from __future__ import annotations

import numpy as np

from pipeline.data.packing.budget import PackBudget
from pipeline.data.packing.lower_bound import fewest_packs
from pipeline.data.packing.pool_search import pack_by_pool
from pipeline.data.packing.sample_costs import measure
from pipeline.data.packing.window_search import pack_by_windows

_TRIAL_SIZE = 8192
"""Samples on which the two searches are compared: two windows."""


_TOLERANCE = 1.001
"""The pool is preferred while it needs at most this factor more packs than the bound or windows."""


def exact(num_tokens: list[int], num_images: list[int], budget: PackBudget) -> list[list[int]]:
    """Return packs filled exactly, or as far as a bounded wait allows; see `Strategy`."""
    search = pack_by_windows if windows_are_better(num_tokens, num_images, budget) else pack_by_pool
    return search(measure(num_tokens, num_images, budget))


def windows_are_better(num_tokens: list[int], num_images: list[int], budget: PackBudget) -> bool:
    """Check whether the first samples need clearly fewer packs by windows than by the pool."""
    if not num_tokens:
        return False
    measures = measure(num_tokens, num_images, budget).head(_TRIAL_SIZE)
    num_packs = len(pack_by_pool(measures))
    bound = fewest_packs(
        np.array(num_tokens[:_TRIAL_SIZE]), np.array(num_images[:_TRIAL_SIZE]), budget
    )
    if num_packs <= max(bound + 1, bound * _TOLERANCE):
        return False
    return len(pack_by_windows(measures)) * _TOLERANCE < num_packs
