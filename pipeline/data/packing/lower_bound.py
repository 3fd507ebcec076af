"""How few packs could hold all samples: what padding no strategy can avoid."""

from __future__ import annotations

import numpy as np

from pipeline.data.packing.budget import PackBudget


def fewest_packs(num_tokens: np.ndarray, num_images: np.ndarray, budget: PackBudget) -> int:
    """A lower bound on the number of packs: the larger one of tokens and of images.

    Each is the bound L2 of Martello and Toth (Discrete Applied Mathematics 28,
    1990), which knows that no two samples larger than half of a pack share one
    and that not everything fits beside them, on sizes and limit divided by the
    sizes' greatest common divisor. It is never below ceil(sum / limit).

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
    counts = np.cumsum(numbers)
    sums = np.cumsum(numbers * np.arange(limit + 1))
    half = limit // 2
    smallest = np.arange(half + 1)
    # For each least size that is looked at: samples that leave no room for such a one have a pack
    # each, larger than half have one too, and the others must go into what these leave or beyond.
    alone = counts[limit] - counts[limit - smallest]
    num_large = counts[limit - smallest] - counts[half]
    large_sum = sums[limit - smallest] - sums[half]
    small_sum = sums[half] - np.where(smallest > 0, sums[smallest - 1], 0)
    beyond = np.maximum(0, small_sum - (num_large * limit - large_sum))
    bounds = alone + num_large + (beyond + limit - 1) // limit
    return max(int(bounds.max()), -(-int(sums[limit]) // limit))
