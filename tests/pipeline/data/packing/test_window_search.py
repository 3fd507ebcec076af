"""The search in windows of the order: how long samples wait."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pipeline.data.packing.budget import PackBudget, Packs
from pipeline.data.packing.pack_statistics import waits
from pipeline.data.packing.sample_costs import measure
from pipeline.data.packing.window_search import LONGEST_DELAY, pack_by_windows
from tests.pipeline.data.packing.lengths import captions, documents

BUDGET = PackBudget(max_tokens=4096)


@pytest.mark.parametrize("make", [captions, documents])
def test_a_sample_in_windows_leaves_before_16384_more_are_read(
    make: Callable[[int], tuple[np.ndarray, np.ndarray]],
) -> None:
    tokens, images = make(40_000)
    packs = Packs.from_lists(pack_by_windows(measure(tokens.tolist(), images.tolist(), BUDGET)))
    found = waits(packs, np.arange(len(tokens)))
    assert 4096 < found.max_samples < LONGEST_DELAY == 16_384
