"""A `history` comes before the question of its row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.manifests.messages import RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.values import read_row
from tests.slurm_jobs.formats.manifests.builders import row_of, spoken

PAIRS = [["What is it?", "A cat."], ["Which colour?", "Black."]]
ASKED = {"query": "Is it asleep?", "response": "No."}
TURNS = [
    ("user", "What is it?"),
    ("assistant", "A cat."),
    ("user", "Which colour?"),
    ("assistant", "Black."),
    ("user", "Is it asleep?"),
    ("assistant", "No."),
]


@pytest.mark.parametrize("history", [PAIRS, [tuple(pair) for pair in PAIRS], json.dumps(PAIRS)])
@pytest.mark.parametrize(
    "asked",
    [
        ASKED,
        {"instruction": "Is it asleep?", "input": "", "output": "No."},
        {"question": "Is it asleep?", "answer": "No."},
    ],
)
def test_earlier_turns_come_first_and_are_learned(history: Any, asked: dict[str, Any]) -> None:
    row = row_of({**asked, "history": history})
    assert (row.problem, row.ignored) == ("", ())
    assert spoken(row) == TURNS
    assert all(message.is_learned for message in row.messages)


@pytest.mark.parametrize("history", [None, [], "", "[]"])
def test_an_empty_history_changes_nothing(history: Any) -> None:
    row = row_of({**ASKED, "history": history})
    assert (row.problem, spoken(row)) == ("", TURNS[-2:])


def test_pictures_are_shown_where_the_earlier_turns_mark_them() -> None:
    history = [["<image>What is it?", "A cat."], ["And <image>?", "A dog."]]
    row = row_of({**ASKED, "history": history, "images": ["a.png", "b.png"]})
    assert [[i.value for i in m.content] for m in row.messages[:3]] == [
        ["a.png", "What is it?"],
        ["A cat."],
        ["And ", "b.png", "?"],
    ]


def test_pictures_without_a_mark_come_before_the_first_words() -> None:
    row = row_of({**ASKED, "history": PAIRS, "image": "a.png"})
    assert [item.value for item in row.messages[0].content] == ["a.png", "What is it?"]


def test_the_system_message_of_the_config_comes_before_earlier_turns() -> None:
    origin = RowOrigin(row=0, line=1, manifest=Path("m.jsonl"))
    options = RowOptions(system_prompt="Be brief.")
    row = read_row(origin, {**ASKED, "history": PAIRS}, options)
    assert spoken(row) == [("system", "Be brief."), *TURNS]


def test_a_doubtful_earlier_answer_is_noted() -> None:
    assert row_of({**ASKED, "history": [["What?", "nan"]]}).notes == ("missing_value",)


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([["What is it?"]], "`history` holds ['What is it?'], expected pairs of a question and"),
        ([["What is it?", None]], "expected pairs of a question and its answer"),
        ([["a", "b", "c"]], "expected pairs of a question and its answer"),
        (["ab"], "`history` holds 'ab', expected pairs"),
        ([{"role": "user", "content": "q"}], "expected pairs of a question and its answer"),
        ("[['What is it?', 'A cat.']]", "in `history`: the turns are text, but no valid JSON"),
        (7, "in `history`: the list of turns is empty or no list"),
        ([["", "A cat."]], "the first turn of the user is empty"),
    ],
    ids=repr,
)
def test_a_history_without_pairs_of_texts_is_refused(history: Any, problem: str) -> None:
    assert problem in row_of({**ASKED, "history": history}).problem


@pytest.mark.parametrize(
    "row",
    [
        {"image": "a.png", "caption": "A cat."},
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
    ],
)
def test_a_history_without_a_question_of_its_row_is_refused(row: dict[str, Any]) -> None:
    problem = row_of({**row, "history": PAIRS}).problem
    assert problem.startswith("`history` holds earlier turns, which are read only before")
    assert "`columns: {ignore: [history]}`" in problem


def test_choices_of_a_question_with_earlier_turns_are_refused() -> None:
    row = row_of({**ASKED, "history": PAIRS, "choices": ["Yes", "No"]})
    assert "`choices` holds choices" in row.problem
