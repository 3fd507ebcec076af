"""What is said of each way of batching, and how it is timed, counted by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pipeline.data.loader import ReadingPlan
from pipeline.data.order import stream_range
from pipeline.data.packing.algorithms import STRATEGIES
from pipeline.data.packing.budget import PackBudget
from pipeline.data.packing.packs import WorkModel, make_packs
from pipeline.tools import packing
from pipeline.tools.packing import (
    SETTINGS,
    Lengths,
    Settings,
    count,
    first_rows,
    plan_of,
    work_of_step,
)
from pipeline.tools.packing_timing import NUM_ROUNDS, Step, share, summarise, take_turns
from slurm_jobs.shared.config import build_config
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import StageConfigError

TOKENS_ALONE = WorkModel(per_image=0, per_square_token=0)
RNG = np.random.default_rng(3)
LENGTHS = Lengths(num_tokens=RNG.integers(5, 60, 600), num_images=RNG.integers(0, 3, 600))


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
    packs = make_packs(
        LENGTHS.num_tokens, LENGTHS.num_images, budget=used.budget, strategy=name, words=[5]
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


def test_rows_of_one_length_are_as_much_work_on_every_rank_where_tokens_alone_count():
    used = settings()
    assert count(plan_of("exact", LENGTHS, used), LENGTHS, used).slowest_over_mean == 1


def test_a_data_set_smaller_than_a_step_is_counted_all_the_same():
    few = Lengths(num_tokens=np.array([8, 16, 24]), num_images=np.zeros(3, int))
    found = count(plan_of("constrained", few, settings()), few, settings())
    assert (found.num_rows, found.rows_per_step) == (3, 16)
    assert found.padding_share == pytest.approx(1 - 48 / (3 * 64))
    assert count(plan_of("shuffled", few, settings()), few, settings()).rows_per_step == 16


def test_of_a_large_data_set_only_the_first_stretch_is_packed(monkeypatch):
    from pipeline.data.packing import packs as packing_plan

    for module in (packing_plan, packing):
        monkeypatch.setattr(module, "STRETCH_SIZE", 256)
    used = settings(seed=5)
    whole = make_packs(
        LENGTHS.num_tokens, LENGTHS.num_images, budget=used.budget, strategy="exact", words=[5]
    )
    plan = plan_of("exact", LENGTHS, used)
    assert plan.packs is not None
    assert len(plan.packs.items) == 256
    assert np.array_equal(plan.packs.items, whole.items[:256])
    assert count(plan_of("shuffled", LENGTHS, used), LENGTHS, used).num_samples == 256


def test_a_sample_above_the_budget_is_refused_with_the_remedy():
    long = Lengths(num_tokens=np.array([8, 90]), num_images=np.zeros(2, int))
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


STEP = Step(work=100, spent_s=2.0)


def nothing(_done: int, _total: int, _unit: str) -> None:
    pass


def ticking() -> Iterator[float]:
    """A clock that is a second later whenever it is looked at."""
    now_s = 0.0
    while True:
        yield now_s
        now_s += 1


def test_names_take_turns_and_progress_is_reported():
    taken: list[str] = []
    told: list[tuple[int, int, str]] = []

    def take_step(name: str) -> Step:
        taken.append(name)
        return STEP

    steps = take_turns("ab", take_step, limit_s=60, report=lambda *word: told.append(word))
    assert "".join(taken) == "ab" * (1 + NUM_ROUNDS)
    assert {name: len(found or []) for name, found in steps.items()} == dict.fromkeys(
        "ab", 1 + NUM_ROUNDS
    )
    assert told[-1] == (2 * (1 + NUM_ROUNDS), 2 * (1 + NUM_ROUNDS), "steps timed")


def test_no_step_begins_when_the_time_is_over_but_the_first():
    clock = ticking()
    steps = take_turns(
        "abc", lambda _name: STEP, limit_s=2.5, report=nothing, clock=lambda: next(clock)
    )
    assert steps == {"a": [STEP], "b": [STEP], "c": [STEP]}
    clock = ticking()
    steps = take_turns(
        "abc", lambda _name: STEP, limit_s=0.5, report=nothing, clock=lambda: next(clock)
    )
    assert steps == {"a": [STEP], "b": [], "c": []}


def test_what_failed_has_no_further_turn():
    taken: list[str] = []

    def take_step(name: str) -> Step | None:
        taken.append(name)
        return None if name == "a" else STEP

    steps = take_turns("ab", take_step, limit_s=60, report=nothing)
    assert steps["a"] is None
    assert taken.count("a") == 1
    assert taken.count("b") == 1 + NUM_ROUNDS


def test_the_first_step_does_not_count_and_the_fastest_says_the_pace():
    cold, *others = (Step(work=100, spent_s=s) for s in (0.1, 4.0, 2.0, 5.0))
    found = summarise([cold, *others])
    assert (found.work_per_s, found.median_work_per_s, found.num_steps) == (50, 25, 3)
    assert not found.is_cold


def test_a_single_step_counts_and_is_marked_cold():
    found = summarise([STEP])
    assert (found.work_per_s, found.num_steps, found.is_cold) == (50, 1, True)


def test_ways_with_the_same_batches_share_a_measurement():
    used = Settings(
        config=TrainConfig(num_steps=1, num_lanes=2, global_batch_size=4),
        budget=PackBudget(max_tokens=12),
        num_ranks=2,
        work=WorkModel(per_image=0, per_square_token=0),
    )
    # Longer than half a row: whichever way, each sample has a row of its own.
    lengths = Lengths(num_tokens=7 + np.arange(40) % 6, num_images=np.zeros(40, int))
    names = ("shuffled", "constrained", "greedy", "ffd", "bfd")
    plans = {name: plan_of(name, lengths, used) for name in names}
    same = share(plans)
    # By falling length, `ffd` and `bfd`; in their order the others, of which `shuffled` pads less.
    assert same == {"greedy": "constrained", "bfd": "ffd"}
