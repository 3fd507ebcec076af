"""Lower bound on the number of packs."""

from __future__ import annotations

import numpy as np

from pipeline.data.packing.budget import PackBudget

_MAX_PARTS = 64
"""Largest number of parts of a pack to which sizes are rounded."""


def fewest_packs(num_tokens: np.ndarray, num_images: np.ndarray, budget: PackBudget) -> int:
    """Return a lower bound on the number of packs: the larger one of tokens and of images.

    Each is the greatest of three bounds, on sizes and limit divided by the sizes' greatest
    common divisor: ceil(sum / limit); L2 of Martello and Toth (Discrete Applied Mathematics 28,
    1990), which uses that no two samples larger than half of a pack share one and that not
    everything fits next to them; and dual feasible functions of Fekete and Schepers
    (Mathematical Programming 91, 2001), which use, for example, that a pack of 16 tiles' length
    never holds three samples with six tiles and a text.

    Args:
        num_tokens: Integers of 1 or more, [num_samples], none above the budget.
        num_images: Integers of 0 or more, [num_samples], none above the budget.
        budget: Budget of a pack.
    """
    bound = _bound_of(num_tokens, budget.max_tokens)
    if budget.max_images is not None:
        bound = max(bound, _bound_of(num_images, budget.max_images))
    return bound


def _bound_of(sizes: np.ndarray, limit: int) -> int:
    divisor = int(np.gcd.reduce(sizes)) if len(sizes) else 0
    if divisor == 0:
        return 0
    limit //= divisor
    numbers = np.bincount(np.asarray(sizes, dtype=np.int64) // divisor, minlength=limit + 1)
    return max(
        -(-int((numbers * np.arange(limit + 1)).sum()) // limit),
        _large_bound(numbers, limit),
        *(_rounded_bound(numbers, limit, parts) for parts in range(1, _MAX_PARTS)),
    )


def _large_bound(numbers: np.ndarray, limit: int) -> int:
    """Return L2 of samples by size.

    For each least size: samples that leave no room for a sample of that size have a pack each,
    those larger than half have one too, and the others must fit into the remaining room or need
    more packs.
    """
    counts = np.cumsum(numbers)
    sums = np.cumsum(numbers * np.arange(limit + 1))
    half = limit // 2
    least = np.arange(half + 1)
    alone = counts[limit] - counts[limit - least]
    num_large = counts[limit - least] - counts[half]
    large_sum = sums[limit - least] - sums[half]
    small_sum = sums[half] - np.where(least > 0, sums[least - 1], 0)
    beyond = np.maximum(0, small_sum - (num_large * limit - large_sum))
    return int((alone + num_large + (beyond + limit - 1) // limit).max())


def _rounded_bound(numbers: np.ndarray, limit: int, parts: int) -> int:
    """Return the bound by u^(parts) after U^(e), for the best e: functions of Fekete and Schepers.

    u rounds a size x (of a pack of 1) to floor((parts + 1) * x) / parts, unless (parts + 1) * x
    is whole. U drops sizes below e and counts those above 1 - e as 1. The content of a pack
    never sums to more than 1 after either, so the sum of all samples is a bound.
    """
    sizes = np.arange(limit + 1)
    scaled = (parts + 1) * sizes
    values = np.where(scaled % limit == 0, sizes * parts, scaled // limit * limit)
    counts = np.cumsum(numbers)
    sums = np.cumsum(numbers * values)
    least = np.arange(limit // 2 + 1)
    alone = counts[limit] - counts[limit - least]
    between = sums[limit - least] - np.where(least > 0, sums[least - 1], 0)
    whole = parts * limit
    return int((alone + (between + whole - 1) // whole).max())
