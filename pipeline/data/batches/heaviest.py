"""Microbatches of a training that take the most memory, from the index and the plan.

Pure. Memory grows with the tokens of the padded rows, with the pixels and with the tokens whose
logits are computed. The weight of each depends on the model, so this finds the heaviest by each
of them, and by tokens and pixels together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.data.order import lanes_of_rank, stream_range
from pipeline.data.packing.pack_statistics import sums_of
from pipeline.data.reading_plan import ReadingPlan

MOST_ROWS = 1 << 24
"""Rows of the order that are searched; later ones are assumed to be no heavier. A million take
up to 1.6 s (`grouped`, on a shared core)."""
_CHUNK_ROWS = 1 << 18
"""Rows that are searched together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleSizes:
    """Sizes of samples on which memory depends; arrays of integers [num_samples]."""

    num_tokens: np.ndarray
    num_learned: np.ndarray
    """Tokens whose logits are computed."""
    num_pixels: np.ndarray
    tokens_per_pixel: float
    """Tokens that weigh as much as one pixel."""


def find_heaviest(
    plan: ReadingPlan,
    sizes: SampleSizes,
    *,
    rank: int,
    num_steps: int,
    row_counts: Sequence[int],
) -> dict[int, list[np.ndarray]]:
    """Return the heaviest microbatches of a rank by their number of rows: packs, int64 [rows] each.

    Searches the first `MOST_ROWS` rows of all ranks, at least one step.

    Args:
        plan: Reading plan; the number of microbatches in its layout has no influence.
        sizes: Sizes of the data set's samples.
        rank: The rank.
        num_steps: Steps of the training.
        row_counts: Divisors of the rows of a rank in a step.
    """
    step_rows = plan.layout.global_batch_size
    last = min(num_steps, max(1, MOST_ROWS // step_rows))
    per_chunk = max(1, _CHUNK_ROWS // step_rows)
    best = {num_rows: _Heaviest() for num_rows in row_counts}
    for first in range(0, last, per_chunk):
        packs = _packs_of_rank(plan, rank, range(first, min(first + per_chunk, last)))
        rows = _sum_rows(plan, packs, sizes)
        for num_rows, heaviest in best.items():
            heaviest.see(packs, _weigh(rows, num_rows, plan.row_length, sizes.tokens_per_pixel))
    return {num_rows: heaviest.distinct() for num_rows, heaviest in best.items()}


class _Heaviest:
    """Heaviest microbatches so far, by each measure."""

    def __init__(self) -> None:
        self._weights: list[float] = []
        self._packs: list[np.ndarray] = []

    def see(self, packs: np.ndarray, weights: np.ndarray) -> None:
        """Update with consecutive microbatches of equal size.

        Args:
            packs: int64 [num_microbatches * rows].
            weights: float64 [num_measures, num_microbatches].
        """
        if not self._weights:
            self._weights = [-1.0] * len(weights)
            self._packs = [packs[:0]] * len(weights)
        pieces = packs.reshape(weights.shape[1], -1)
        for number, place in enumerate(weights.argmax(axis=1).tolist()):
            weight = float(weights[number, place])
            if weight > self._weights[number]:
                self._weights[number], self._packs[number] = weight, pieces[place].copy()

    def distinct(self) -> list[np.ndarray]:
        """Return the heaviest without duplicates."""
        return list({packs.tobytes(): packs for packs in self._packs}.values())


def _packs_of_rank(plan: ReadingPlan, rank: int, steps: range) -> np.ndarray:
    """Return the packs of a rank step by step: int64 [num_steps * rows of the rank]."""
    layout = plan.layout
    start, stop = (step * layout.global_batch_size for step in (steps.start, steps.stop))
    packs, _ = stream_range(start, stop, plan.num_packs, plan.order)
    lanes = lanes_of_rank(layout, rank)
    by_lane = packs.reshape(len(steps), layout.num_lanes, -1)
    return by_lane[:, lanes.start : lanes.stop].reshape(-1)


def _sum_rows(plan: ReadingPlan, packs: np.ndarray, sizes: SampleSizes) -> np.ndarray:
    """Return tokens, learned tokens and pixels of each row: int64 [3, num_rows]."""
    columns = (sizes.num_tokens, sizes.num_learned, sizes.num_pixels)
    if plan.packs is None:
        return np.stack([column[packs].astype(np.int64) for column in columns])
    some = plan.packs.some(packs)
    return np.stack([sums_of(some, column) for column in columns])


def _weigh(
    rows: np.ndarray, num_rows: int, row_length: int | None, tokens_per_pixel: float
) -> np.ndarray:
    """Weigh microbatches of `num_rows` by each measure: float64 [4, num_microbatches]."""
    tokens, learned, pixels = rows.reshape(3, -1, num_rows)
    longest = tokens.max(axis=1) if row_length is None else np.full(len(tokens), row_length)
    padded = longest.astype(np.float64) * num_rows
    both = padded + tokens_per_pixel * pixels.sum(axis=1)
    return np.stack([padded, learned.sum(axis=1), pixels.sum(axis=1), both])
