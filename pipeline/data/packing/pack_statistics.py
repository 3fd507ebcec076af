"""Sums over the samples of packs, and the delay of samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.data.packing.budget import Packs


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
