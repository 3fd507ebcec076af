"""How few packs could hold all samples: what padding no strategy can avoid."""

from __future__ import annotations

import numpy as np

from pipeline.data.packing.budget import PackBudget

_MAX_PARTS = 64
"""Roundings to so many parts of a pack are tried."""


def fewest_packs(num_tokens: np.ndarray, num_images: np.ndarray, budget: PackBudget) -> int:
    """A lower bound on the number of packs: the larger one of tokens and of images.

    Of each, on sizes and limit divided by the sizes' greatest common divisor,
    the greatest of three bounds: ceil(sum / limit); L2 of Martello and Toth
    (Discrete Applied Mathematics 28, 1990), which knows that no two samples
    larger than half of a pack share one and that not everything fits beside
    them; and dual feasible functions of Fekete and Schepers (Mathematical
    Programming 91, 2001), which know that of samples with six tiles and a text
    no pack of 16 tiles' length holds a third.

    Args:
        num_tokens: Integers of 1 or more, [num_samples], none above the budget.
        num_images: Integers of 0 or more, [num_samples], none above the budget.
        budget: Of a pack.
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
    """L2 of samples by size.

    For each least size that is looked at: samples that leave no room for such a
    one have a pack each, those larger than half have one too, and the others
    must go into what these leave, or beyond.
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
    """The bound by u^(parts) after U^(e), for the best e: functions of Fekete and Schepers.

    u rounds a size x (of a pack of 1) to floor((parts + 1) * x) / parts, unless
    (parts + 1) * x is whole. U leaves out sizes below e and takes those above
    1 - e for 1. What a pack holds never sums to more than 1 after either, so
    that all samples' sum is a bound.
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
