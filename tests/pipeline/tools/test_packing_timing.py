"""Timed steps of each arrangement, which take turns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeline.data.packing.budget import PackBudget
from pipeline.data.packing.work_model import WorkModel
from pipeline.tools.arrangements import SampleLengths, Settings, plan_of
from pipeline.tools.packing_timing import NUM_ROUNDS, Step, share, summarise, take_turns
from slurm_jobs.formats.configs.train import TrainConfig

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
    lengths = SampleLengths(num_tokens=7 + np.arange(40) % 6, num_images=np.zeros(40, int))
    names = ("shuffled", "constrained", "greedy", "ffd", "bfd")
    plans = {name: plan_of(name, lengths, used) for name in names}
    same = share(plans)
    # By falling length, `ffd` and `bfd`; in their order the others, of which `shuffled` pads less.
    assert same == {"greedy": "constrained", "bfd": "ffd"}
