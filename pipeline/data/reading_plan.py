"""What a training reads, before it is divided among ranks: packs, their order, their row length.

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
    """Which samples stand in which pack, and in which order the packs come."""

    layout: BatchLayout
    """Sizes in packs."""
    num_packs: int
    """In an epoch."""
    order: EpochOrder
    packs: Packs | None = None
    """None: pack n is sample n alone."""
    row_length: int | None = None
    """Tokens of a row; None pads a microbatch to its longest."""

    def samples_of(self, pack: int) -> Sequence[int]:
        """Numbers of the samples in a pack, in the order of their places in the row."""
        if self.packs is None:
            return (pack,)
        return self.packs.pack(pack).tolist()


def plan_shuffled(num_samples: int, *, seed: int, layout: BatchLayout) -> ReadingPlan:
    """One sample a row, in random order."""
    return ReadingPlan(
        layout=layout, num_packs=num_samples, order=shuffled_order(num_samples, seed)
    )


def plan_grouped(lengths: np.ndarray, *, seed: int, layout: BatchLayout) -> ReadingPlan:
    """One sample a row, samples of like length in a batch, so that little is padded.

    `lengths` are integers [num_samples].
    """

    def work_of(samples: np.ndarray) -> np.ndarray:
        return lengths[samples].astype(np.float64)

    order = dealt_order(work_of, len(lengths), seed, layout, alike=True)
    return ReadingPlan(layout=layout, num_packs=len(lengths), order=order)


def plan_packed(
    packs: Packs, work_of: WorkOf, *, seed: int, layout: BatchLayout, row_length: int | None
) -> ReadingPlan:
    """Several samples a row, the lanes of a global batch of equal work."""
    return ReadingPlan(
        layout=layout,
        num_packs=len(packs),
        order=dealt_order(work_of, len(packs), seed, layout),
        packs=packs,
        row_length=row_length,
    )
