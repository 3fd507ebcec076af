"""What is printed and written when a tuning is over."""

from __future__ import annotations

import dataclasses
import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from slurm_jobs.cli.reports.tuning_screen import render
from slurm_jobs.tuning.summary import result_of, verdict_of_closing
from slurm_jobs.tuning.trial_model import TrialFinding
from slurm_jobs.tuning.tuning_sentence import TOO_SHORT, disturbed, headline, why_nothing_tried
from tests.slurm_jobs.tuning.simulated import DATA_WAIT, facts, simulate_tuning


def flat(_changes: dict[str, Any]) -> float:
    return 1000.0


def threads_help(changes: dict[str, Any]) -> float:
    return 400.0 * min(8, changes.get("num_loader_threads", 2))


def result(speed: Any, budget_min: float = 240.0, **values: Any) -> dict[str, Any]:
    given = facts(budget_min)
    tuning, trials = simulate_tuning(given, speed, **values)
    return result_of(given, tuning, trials, stage="train")


def shown(values: dict[str, Any]) -> str:
    console = Console(width=80, file=io.StringIO())
    console.print(render(values))
    return console.file.getvalue()


def test_predicted_and_came_stand_side_by_side():
    values = result(threads_help)
    first = values["tried"][0]
    assert (first["key"], first["value"], first["outcome"]) == ("num_loader_threads", 4, "kept")
    assert first["predicted_times"] == 1.67
    assert 1.95 < first["low"] < first["ratio"] < first["high"] < 2.05
    assert values["data"]["predicted_times"] == 1.67
    assert 1.5 < values["data"]["ratio"] < 1.7


def test_what_a_ceiling_predicts_is_not_called_a_bound():
    head = next(line for line in shown(result(threads_help)).splitlines() if "its finding" in line)
    assert head.split() == ["change,", "and", "its", "finding", "predicted", "measured"]


def test_a_key_that_was_changed_twice_is_listed_once_with_its_first_value():
    values = result(threads_help)
    assert values["kept"] == [{"key": "num_loader_threads", "value": 8, "was": 2}]
    assert (
        values["closing"]["after"]["tokens_per_s"] > 3 * values["closing"]["before"]["tokens_per_s"]
    )


def test_the_result_is_json_and_its_text_fits_80_columns():
    def fails(ask: Any) -> str:
        is_it = ask.changes and ask.changes[-1].key == "num_compute_threads"
        return "rank 0: OutOfMemoryError: no room" if is_it else ""

    values = json.loads(json.dumps(result(threads_help, fails=fails)))
    text = shown(values)
    assert max(map(len, text.splitlines())) <= 80
    assert "OutOfMemoryError" in text
    assert "num_loader_threads: 16" in text
    assert "cpus_per_task" in text
    assert "2 -> 8" in text


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (DATA_WAIT, "none of the 3 changes that were tried is surely faster"),
        (
            dataclasses.replace(DATA_WAIT, kind="cores"),
            "the one change that was tried is not surely faster",
        ),
    ],
)
def test_a_tuning_that_keeps_nothing_says_so(cause: TrialFinding, said: str):
    values = result(flat, causes=lambda _: [cause])
    assert headline(values) == f"Nothing is kept: {said}."
    assert "there is no after" in shown(values)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("cannot tell", "whether after is faster than before, their trials cannot tell"),
        ("equal", "before and after are equally fast"),
        ("slower", "after is slower than before"),
    ],
)
def test_without_a_faster_closing_comparison_no_speed_is_claimed(word: str, said: str):
    values = result(threads_help)
    closing = {**values["closing"], "word": word, "ratio": 1.2, "low": 0.9, "high": 1.6}
    text = headline({**values, "closing": closing})
    assert text.startswith("Nothing is changed, no gain is sure with num_loader_threads: 8")
    assert said in text
    assert "as fast with" not in text
    not_measured = headline({**values, "closing": None})
    assert "whether all of it together is faster is not known" in not_measured
    assert "times" not in not_measured


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


def test_nothing_found_is_nothing_tried():
    values = result(flat, causes=lambda _: [])
    assert headline(values) == ("Nothing is kept: no finding names a change that could be tried.")
    assert "no finding names a change that could be tried" in shown(values)


def test_a_change_that_the_budget_left_out_is_no_missing_finding():
    left = {"name": 'strategy: "ddp"', "finding": "f", "why": "70 s were left", "needs_s": 120.0}
    values = {**result(flat, causes=lambda _: []), "not_tried": [left]}
    said = "the budget left no room for strategy: ddp"
    assert headline(values) == f"Nothing is kept: {said}."
    assert said in shown(values)
    assert "no finding names" not in shown(values).split("Tried, strongest")[1]


def test_a_change_that_fails_in_the_closing_measurement_is_taken_back():
    def fails(ask: Any) -> str:
        return "rank 0: OutOfMemoryError" if ask.purpose == "closing" and ask.changes else ""

    values = result(threads_help, fails=fails)
    assert values["kept"]
    assert values["is_taken_back"]
    assert headline(values) == (
        "Nothing is changed: with num_loader_threads: 8 the training failed when before and after "
        "were measured: rank 0: OutOfMemoryError."
    )
    text = " ".join(shown(values).split())
    assert "after was not measured: rank 0: OutOfMemoryError" in text
    assert "no budget was left" not in text


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


def test_what_was_kept_and_proves_no_gain_is_called_taken_back():
    values = {**result(threads_help), "is_taken_back": True}
    text = shown(values)
    assert "taken back" in text
    assert "the new spec does not have it" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert "taken back" not in shown(result(threads_help))


def test_a_change_that_saves_more_than_its_finding_counts_is_explained():
    told = "a change may save other time, too"
    values = result(threads_help)
    assert told in " ".join(shown(values).split())
    assert told not in " ".join(shown(result(flat)).split())


def test_data_that_costs_time_without_a_wait_is_reported_with_the_cause():
    values = result(threads_help)
    told = "what loads it takes cores from what computes"
    assert told not in " ".join(shown(values).split())
    unseen = {**values["data"], "predicted": "", "predicted_times": None, "word": "faster"}
    assert told in " ".join(shown({**values, "data": unseen}).split())


@pytest.mark.parametrize(
    "left", [{"kind": "too_short", "why": "in other words"}, {"why": TOO_SHORT}]
)
def test_a_change_that_only_needs_longer_trials_is_not_called_unnamed(left) -> None:
    """Results of earlier versions have no kind."""
    entry = {"name": "num_prefetch_batches: 8", "needs_s": None, **left}
    said = why_nothing_tried({"not_tried": [entry]})
    assert said == ("trials have too few steps for num_prefetch_batches: 8: give a larger --budget")


def test_other_processes_on_the_cores_are_reported_above_all_numbers() -> None:
    title = "other processes use the job's cores on cpu1 (train)"
    result = {"findings": [{"rule": "data-wait", "title": "x"}]}
    assert disturbed(result) == ""
    result["findings"].append({"rule": "foreign-load", "title": title})
    assert disturbed(result).startswith(f"{title}: what follows has that in it")
