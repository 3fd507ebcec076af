"""What is said of each way of batching, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.data.order import stream_range
from pipeline.data.packing.algorithms import STRATEGIES
from pipeline.data.packing.budget import PackBudget, join_packs
from pipeline.data.packing.pack_order import pack_order
from pipeline.data.packing.work_model import WorkModel
from pipeline.data.reading_plan import ReadingPlan
from pipeline.tools import arrangements
from pipeline.tools.arrangements import (
    SETTINGS,
    SampleLengths,
    Settings,
    count,
    first_rows,
    plan_of,
    work_of_step,
)
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig

TOKENS_ALONE = WorkModel(per_image=0, per_square_token=0)
RNG = np.random.default_rng(3)
LENGTHS = SampleLengths(num_tokens=RNG.integers(5, 60, 600), num_images=RNG.integers(0, 3, 600))


def settings(num_ranks: int = 2, work: WorkModel = TOKENS_ALONE, **config: object) -> Settings:
    values = {"num_steps": 1, "num_lanes": 4, "global_batch_size": 16, **config}
    return Settings(
        config=build_config(TrainConfig, values),
        budget=PackBudget(max_tokens=64, max_images=8),
        num_ranks=num_ranks,
        work=work,
    )


def rows_of_epoch(plan: ReadingPlan, num_steps: int) -> list[list[list[int]]]:
    """Lengths of the samples of each row, microbatch by microbatch, one microbatch a rank."""
    layout = plan.layout
    numbers, _ = stream_range(0, num_steps * layout.global_batch_size, plan.num_packs, plan.order)
    rows = [LENGTHS.num_tokens[list(plan.samples_of(int(n)))].tolist() for n in numbers]
    size = layout.rank_batch_size
    return [rows[start : start + size] for start in range(0, len(rows), size)]


@pytest.mark.parametrize("name", ["shuffled", "grouped"])
def test_unpacked_rows_are_padded_to_the_longest_of_their_microbatch(name):
    used = settings()
    plan = plan_of(name, LENGTHS, used)
    found = count(plan, LENGTHS, used)
    batches = rows_of_epoch(plan, 600 // 16)
    places = sum(len(batch) * max(sum(row) for row in batch) for batch in batches)
    tokens = sum(sum(row) for batch in batches for row in batch)
    assert found.padding_share == pytest.approx(1 - tokens / places)
    assert (found.num_rows, found.num_samples, found.rows_per_step) == (600, 600, 16)


def test_each_microbatch_is_padded_separately():
    whole = count(plan_of("shuffled", LENGTHS, settings()), LENGTHS, settings())
    cut = settings(num_microbatches=8)  # of one row each
    assert count(plan_of("shuffled", LENGTHS, cut), LENGTHS, cut).padding_share == 0
    assert whole.padding_share > 0.2


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"none"}))
def test_packed_rows_are_those_of_the_strategy_padded_to_the_budget(name):
    used = settings(seed=5)
    packs = join_packs(
        pack_order(
            LENGTHS.num_tokens, LENGTHS.num_images, budget=used.budget, strategy=name, words=[5]
        )
    )
    found = count(plan_of(name, LENGTHS, used), LENGTHS, used)
    assert (found.num_rows, found.num_samples) == (len(packs), 600)
    assert found.padding_share == pytest.approx(1 - LENGTHS.num_tokens.sum() / (64 * len(packs)))


def test_every_strategy_and_kind_is_shown_by_what_a_user_types():
    kinds = {"shuffled", "grouped"}
    assert set(SETTINGS) == (set(STRATEGIES) - {"none"}) | kinds
    for name, text in SETTINGS.items():
        key = f"kind: {name}" if name in kinds else f"kind: packed, strategy: {name}"
        assert text == f"{{{key}}}"


def test_slowest_rank_is_counted_with_its_padding_images_and_attention():
    work = WorkModel(per_image=10, per_square_token=0.01)
    used = settings(work=work)
    plan = plan_of("shuffled", LENGTHS, used)
    numbers, _ = stream_range(0, 37 * 16, 600, plan.order)
    ratios, first = [], 0.0
    for step in numbers.reshape(37, 2, 8):
        costs = []
        for rank in step:
            tokens, images = LENGTHS.num_tokens[rank], LENGTHS.num_images[rank]
            costs.append(8 * tokens.max() + 10 * images.sum() + 0.01 * (tokens**2).sum())
        ratios.append(max(costs) / np.mean(costs))
        first = first or costs[0]
    assert count(plan, LENGTHS, used).slowest_over_mean == pytest.approx(np.mean(ratios))
    assert work_of_step(plan, 0, LENGTHS, work) == pytest.approx(first)


def test_rows_of_one_length_are_equal_work_on_every_rank_by_tokens_alone():
    used = settings()
    assert count(plan_of("exact", LENGTHS, used), LENGTHS, used).slowest_over_mean == 1


def test_a_data_set_smaller_than_a_step_is_counted_all_the_same():
    few = SampleLengths(num_tokens=np.array([8, 16, 24]), num_images=np.zeros(3, int))
    found = count(plan_of("constrained", few, settings()), few, settings())
    assert (found.num_rows, found.rows_per_step) == (3, 16)
    assert found.padding_share == pytest.approx(1 - 48 / (3 * 64))
    assert count(plan_of("shuffled", few, settings()), few, settings()).rows_per_step == 16


def test_of_a_large_data_set_only_the_first_stretch_is_packed(monkeypatch):
    from pipeline.data.packing import pack_order as packing_plan

    for module in (packing_plan, arrangements):
        monkeypatch.setattr(module, "STRETCH_SIZE", 256)
    used = settings(seed=5)
    whole = join_packs(
        pack_order(
            LENGTHS.num_tokens, LENGTHS.num_images, budget=used.budget, strategy="exact", words=[5]
        )
    )
    plan = plan_of("exact", LENGTHS, used)
    assert plan.packs is not None
    assert len(plan.packs.items) == 256
    assert np.array_equal(plan.packs.items, whole.items[:256])
    assert count(plan_of("shuffled", LENGTHS, used), LENGTHS, used).num_samples == 256


def test_a_sample_above_the_budget_is_refused_with_the_remedy():
    long = SampleLengths(num_tokens=np.array([8, 90]), num_images=np.zeros(2, int))
    with pytest.raises(StageConfigError, match=r"more than max_tokens = 64.*--max-tokens 90"):
        plan_of("exact", long, settings())


def test_first_rows_are_those_of_the_first_step_with_their_padding():
    used = settings()
    plan = plan_of("shuffled", LENGTHS, used)
    (batch, *_) = rows_of_epoch(plan, 1)
    rows = first_rows(plan, LENGTHS, 5)
    assert [row["lengths"] for row in rows] == batch[:5]
    assert {row["padded"] for row in rows} == {max(sum(row) for row in batch)}
    packed = first_rows(plan_of("exact", LENGTHS, used), LENGTHS, 3)
    assert [row["padded"] for row in packed] == [64, 64, 64]
    assert all(0 < sum(row["lengths"]) <= 64 for row in packed)
