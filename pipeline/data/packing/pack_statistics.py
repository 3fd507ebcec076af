"""Padding of packs, delay of their samples, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.data.packing.budget import PackBudget, Packs
from pipeline.data.packing.lower_bound import fewest_packs


@dataclass(frozen=True, kw_only=True, slots=True)
class Padding:
    """Token positions, and how many of them are empty."""

    num_packs: int
    num_tokens: int
    num_places: int
    """Tokens that the model computes, padding included."""
    least_num_packs: int
    """Lower bound for packs that are padded to the full; see `fewest_packs`."""
    max_tokens: int

    @property
    def share(self) -> float:
        """Share of positions that are padding."""
        return 1 - self.num_tokens / self.num_places

    @property
    def least_share(self) -> float:
        """Share for `least_num_packs` packs, each padded to `max_tokens`."""
        return 1 - self.num_tokens / (self.least_num_packs * self.max_tokens)


def padding(
    packs: Packs,
    num_tokens: np.ndarray,
    num_images: np.ndarray,
    *,
    budget: PackBudget,
    batch_size: int | None = None,
) -> Padding:
    """Return the padding of packs filled up to `max_tokens`, or to the longest of their batch.

    Args:
        packs: One or more.
        num_tokens: Integers [num_samples] of the index.
        num_images: Integers [num_samples].
        budget: Budget of a pack.
        batch_size: Packs that are padded together to the longest of them, as for `none`; the
            last batch may be short. None: each is padded to `budget.max_tokens`.
    """
    loads = sums_of(packs, num_tokens)
    if batch_size is None:
        num_places = len(packs) * budget.max_tokens
    else:
        starts = np.arange(0, len(loads), batch_size)
        sizes = np.diff(np.append(starts, len(loads)))
        num_places = int((np.maximum.reduceat(loads, starts) * sizes).sum())
    return Padding(
        num_packs=len(packs),
        num_tokens=int(loads.sum()),
        num_places=num_places,
        least_num_packs=fewest_packs(num_tokens[packs.items], num_images[packs.items], budget),
        max_tokens=budget.max_tokens,
    )


def sums_of(packs: Packs, values: np.ndarray) -> np.ndarray:
    """Return the sum of integers over the samples of each pack, int64 [num_packs].

    Args:
        packs: One or more, none empty.
        values: Integers [num_samples], such as `num_tokens` or `num_images` of the index.
    """
    return np.add.reduceat(values[packs.items].astype(np.int64), packs.bounds[:-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """Delay of samples against their order; 0 for those that come earlier."""

    max_packs: int
    """Packs between a sample's pack and the one at its position in the order."""
    max_samples: int
    """Positions between a sample's in its packs and in the order."""
    mean_samples: float


def waits(packs: Packs, order: np.ndarray) -> Waits:
    """Return how long samples waited.

    Args:
        packs: One or more.
        order: The samples in the order in which the strategy saw them, [num_items].
    """
    num_items = len(order)
    place_in_order = np.empty(int(packs.items.max()) + 1, dtype=np.int64)
    place_in_order[order] = np.arange(num_items)
    places = place_in_order[packs.items]
    pack_of_place = np.repeat(np.arange(len(packs)), np.diff(packs.bounds))
    late_samples = np.maximum(0, np.arange(num_items) - places)
    late_packs = np.maximum(0, pack_of_place - pack_of_place[places])
    return Waits(
        max_packs=int(late_packs.max()),
        max_samples=int(late_samples.max()),
        mean_samples=float(late_samples.mean()),
    )
