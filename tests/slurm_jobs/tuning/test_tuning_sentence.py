"""The result of a tuning in one sentence, which claims no speed that is not sure."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from slurm_jobs.tuning.trial_model import TrialFinding
from slurm_jobs.tuning.tuning_sentence import TOO_SHORT, disturbed, headline, why_nothing_tried
from tests.slurm_jobs.tuning.ended_tunings import flat, result, shown, threads_help
from tests.slurm_jobs.tuning.simulated import DATA_WAIT


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
