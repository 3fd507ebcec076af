"""How long samples wait against their order."""

from __future__ import annotations

import numpy as np

from pipeline.data.packing.budget import Packs
from pipeline.data.packing.pack_statistics import waits


def test_waits_are_counted_from_the_place_in_the_order() -> None:
    order = np.array([7, 5, 3, 1])
    packs = Packs(bounds=np.array([0, 2, 3, 4]), items=np.array([5, 3, 1, 7]))
    found = waits(packs, order)
    assert (found.max_samples, found.max_packs) == (3, 2)  # 7 was first, and came last
    assert found.mean_samples == 3 / 4
    assert waits(packs, packs.items).max_samples == 0
