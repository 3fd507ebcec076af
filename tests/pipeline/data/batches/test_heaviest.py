"""The heaviest microbatches are those that a look at every microbatch of every step finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.data.batches import heaviest as work
from pipeline.data.batches.heaviest import SampleSizes, find_heaviest
from pipeline.data.order import BatchLayout, rank_microbatches
from pipeline.data.packing.budget import Packs
from pipeline.data.reading_plan import ReadingPlan, plan_grouped, plan_packed, plan_shuffled

LAYOUT = BatchLayout(global_batch_size=24, num_lanes=4, num_ranks=2, num_microbatches=1)
NUM_SAMPLES, NUM_STEPS = 300, 31
ROW_COUNTS = (1, 2, 3, 4, 6, 12)
DRAW = np.random.default_rng(0)
SIZES = SampleSizes(
    num_tokens=DRAW.integers(10, 100, NUM_SAMPLES),
    num_learned=DRAW.integers(1, 10, NUM_SAMPLES),
    num_pixels=DRAW.integers(0, 5000, NUM_SAMPLES),
    tokens_per_pixel=0.02,
)


def packed(row_length: int | None) -> ReadingPlan:
    packs = Packs(bounds=np.arange(0, NUM_SAMPLES + 1, 2), items=np.arange(NUM_SAMPLES))
    return plan_packed(
        packs, lambda some: some.astype(float), seed=0, layout=LAYOUT, row_length=row_length
    )


PLANS = {
    "shuffled": plan_shuffled(NUM_SAMPLES, seed=0, layout=LAYOUT),
    "grouped": plan_grouped(SIZES.num_tokens, seed=0, layout=LAYOUT),
    "packed": packed(200),
    "packed, each row as long as it is": packed(None),
}


def measures(plan: ReadingPlan, packs: np.ndarray) -> tuple[float, ...]:
    rows = [list(plan.samples_of(pack)) for pack in packs]
    tokens, learned, pixels = (
        [int(column[row].sum()) for row in rows]
        for column in (SIZES.num_tokens, SIZES.num_learned, SIZES.num_pixels)
    )
    padded = len(rows) * (plan.row_length or max(tokens))
    both = padded + SIZES.tokens_per_pixel * sum(pixels)
    return padded, sum(learned), sum(pixels), both


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("rank", [0, 1])
def test_none_of_all_microbatches_is_heavier_by_any_measure(name, rank, monkeypatch):
    monkeypatch.setattr(work, "_CHUNK_ROWS", 5 * LAYOUT.global_batch_size)
    plan = PLANS[name]
    found = find_heaviest(plan, SIZES, rank=rank, num_steps=NUM_STEPS, row_counts=ROW_COUNTS)
    for num_rows in ROW_COUNTS:
        cut = replace(LAYOUT, num_microbatches=12 // num_rows)
        every = [
            part.packs
            for step in range(NUM_STEPS)
            for part in rank_microbatches(step, cut, rank, plan.num_packs, plan.order)
        ]
        most = np.array([measures(plan, packs) for packs in every]).max(axis=0)
        of_found = np.array([measures(plan, packs) for packs in found[num_rows]])
        np.testing.assert_allclose(of_found.max(axis=0), most)
        known = {packs.tobytes() for packs in every}
        assert all(packs.tobytes() in known for packs in found[num_rows])


def test_rows_above_the_maximum_are_not_read(monkeypatch):
    monkeypatch.setattr(work, "MOST_ROWS", 2 * LAYOUT.global_batch_size + 5)
    plan = PLANS["shuffled"]
    found = find_heaviest(plan, SIZES, rank=0, num_steps=NUM_STEPS, row_counts=[12])
    assert found[12]
    parts = [rank_microbatches(step, LAYOUT, 0, NUM_SAMPLES, plan.order) for step in range(2)]
    known = {part.packs.tobytes() for step in parts for part in step}
    assert {packs.tobytes() for packs in found[12]} <= known
