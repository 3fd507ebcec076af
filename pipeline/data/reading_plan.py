"""Data that a training reads, before ranks divide it: packs, their order, their row length.

Pure: from the columns of the index, the packs and numbers of the spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.data.order import BatchLayout, EpochOrder, WorkOf, dealt_order, shuffled_order
from pipeline.data.packing.budget import Packs


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingPlan:
    """Samples of each pack, and the order of the packs."""

    layout: BatchLayout
    """Sizes in packs."""
    num_packs: int
    """Packs in an epoch."""
    order: EpochOrder
    packs: Packs | None = None
    """None: pack n is sample n."""
    row_length: int | None = None
    """Tokens of a row; None pads a microbatch to its longest."""

    def samples_of(self, pack: int) -> Sequence[int]:
        """Return the numbers of the samples in a pack, in the order of the row."""
        if self.packs is None:
            return (pack,)
        return self.packs.pack(pack).tolist()


def plan_shuffled(num_samples: int, *, seed: int, layout: BatchLayout) -> ReadingPlan:
    """Plan one sample per row, in random order."""
    return ReadingPlan(
        layout=layout, num_packs=num_samples, order=shuffled_order(num_samples, seed)
    )


def plan_grouped(lengths: np.ndarray, *, seed: int, layout: BatchLayout) -> ReadingPlan:
    """Plan one sample per row, with samples of similar length in a batch to reduce padding.

    `lengths` are integers [num_samples].
    """

    def work_of(samples: np.ndarray) -> np.ndarray:
        return lengths[samples].astype(np.float64)

    order = dealt_order(work_of, len(lengths), seed, layout, alike=True)
    return ReadingPlan(layout=layout, num_packs=len(lengths), order=order)


def plan_packed(
    packs: Packs, work_of: WorkOf, *, seed: int, layout: BatchLayout, row_length: int | None
) -> ReadingPlan:
    """Plan several samples per row, with equal work in the lanes of a global batch."""
    return ReadingPlan(
        layout=layout,
        num_packs=len(packs),
        order=dealt_order(work_of, len(packs), seed, layout),
        packs=packs,
        row_length=row_length,
    )
