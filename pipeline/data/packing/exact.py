"""The default strategy: packs that are filled exactly, by whichever search suits the lengths.

A pool of the oldest samples fills packs to the last token where samples are
much smaller than a pack, and keeps nearly their order. Where few samples fill a
pack, the pool uses up what fits and is left with what does not; a window sees
enough of both. The beginning of the order tells which case it is.
"""

from __future__ import annotations

import numpy as np

from pipeline.data.packing.budget import PackBudget
from pipeline.data.packing.lower_bound import fewest_packs
from pipeline.data.packing.measures import measure
from pipeline.data.packing.pool import pack_by_pool
from pipeline.data.packing.window import pack_by_windows

_TRIAL_SIZE = 8192
"""Samples on which the two searches are compared: two windows."""
_TOLERANCE = 1.001
"""The pool is preferred while it needs so many times the packs of the bound or of windows."""


def exact(
    num_tokens: list[int], num_images: list[int], budget: PackBudget
) -> tuple[list[int], list[int]]:
    """Packs filled exactly, or as far as a bounded wait allows; see `Strategy`."""
    search = pack_by_windows if windows_are_better(num_tokens, num_images, budget) else pack_by_pool
    return search(measure(num_tokens, num_images, budget))


def windows_are_better(num_tokens: list[int], num_images: list[int], budget: PackBudget) -> bool:
    """Whether the first samples need clearly fewer packs by windows than by the pool."""
    if not num_tokens:
        return False
    measures = measure(num_tokens, num_images, budget).head(_TRIAL_SIZE)
    num_packs = len(pack_by_pool(measures)[0])
    bound = fewest_packs(
        np.array(num_tokens[:_TRIAL_SIZE]), np.array(num_images[:_TRIAL_SIZE]), budget
    )
    if num_packs <= max(bound + 1, bound * _TOLERANCE):
        return False
    return len(pack_by_windows(measures)[0]) * _TOLERANCE < num_packs
