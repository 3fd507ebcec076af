"""What is kept when a tuning is over, and what is taken back."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from slurm_jobs.tuning.summary import result_of, verdict_of_closing
from slurm_jobs.tuning.tuning_sentence import headline
from tests.slurm_jobs.tuning.ended_tunings import result, threads_help
from tests.slurm_jobs.tuning.simulated import facts, simulate_tuning


def test_predicted_and_came_stand_side_by_side():
    values = result(threads_help)
    first = values["tried"][0]
    assert (first["key"], first["value"], first["outcome"]) == ("num_loader_threads", 4, "kept")
    assert first["predicted_times"] == 1.67
    assert 1.95 < first["low"] < first["ratio"] < first["high"] < 2.05
    assert values["data"]["predicted_times"] == 1.67
    assert 1.5 < values["data"]["ratio"] < 1.7


def test_a_key_that_was_changed_twice_is_listed_once_with_its_first_value():
    values = result(threads_help)
    assert values["kept"] == [{"key": "num_loader_threads", "value": 8, "was": 2}]
    assert (
        values["closing"]["after"]["tokens_per_s"] > 3 * values["closing"]["before"]["tokens_per_s"]
    )


def test_what_is_not_faster_in_the_end_is_taken_back():
    given = facts(240.0)
    tuning, trials = simulate_tuning(given, threads_help)
    assert tuning.closing is not None
    before, after = tuning.closing.first, tuning.closing.second

    def is_taken_back(second: Any) -> bool:
        closing = dataclasses.replace(tuning.closing, first=before, second=second)
        changed = dataclasses.replace(tuning, closing=closing)
        return bool(result_of(given, changed, trials, stage="train")["is_taken_back"])

    assert not is_taken_back(after)
    assert is_taken_back(before)  # the same speeds


def test_two_closing_trials_take_a_slower_change_back_and_praise_none():
    given = facts(240.0)
    tuning, trials = simulate_tuning(given, threads_help)
    assert tuning.closing is not None
    own = tuning.closing.first[:2]
    for speeds, word, is_back in (
        ((700.0, 701.0), "slower", True),
        ((2000.0, 2001.0), None, False),
    ):
        first, second = (
            tuple(
                dataclasses.replace(one, tokens_per_s=speed)
                for one, speed in zip(own, of_arm, strict=True)
            )
            for of_arm in ((1000.0, 1001.0), speeds)
        )
        closing = dataclasses.replace(tuning.closing, first=first, second=second)
        values = result_of(
            given, dataclasses.replace(tuning, closing=closing), trials, stage="train"
        )
        assert (values["closing"]["word"], values["is_taken_back"]) == (word, is_back)
        assert "no budget was left" not in headline(values) or not is_back


def test_two_trials_an_arm_have_no_word_on_before_and_after() -> None:
    word = SimpleNamespace(word="faster")
    few: Any = SimpleNamespace(first=[1, 2], second=[1, 2, 3], verdict=word)
    enough: Any = SimpleNamespace(first=[1, 2, 3], second=[1, 2, 3], verdict=word)
    assert verdict_of_closing(few) is None
    assert verdict_of_closing(enough) is word
