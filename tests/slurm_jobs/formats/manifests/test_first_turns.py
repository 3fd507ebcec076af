"""A conversation that begins with an answer: one rule, whatever the model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.slurm_jobs.formats.manifests.builders import (
    ANSWER,
    ASKED,
    PICTURE,
    QUESTION,
    chat,
    row_of,
    spoken,
)

GREETING = {"from": "gpt", "value": "Hello."}
SYSTEM = {"from": "system", "value": "Be brief."}
REST = [("user", "What is it?"), ("assistant", "A cat.")]


@pytest.mark.parametrize(
    ("turns", "left"),
    [
        ([GREETING, QUESTION, ANSWER], REST),
        ([GREETING, GREETING, QUESTION, ANSWER], REST),
        ([SYSTEM, GREETING, QUESTION, ANSWER], [("system", "Be brief."), *REST]),
        ([{**GREETING, "loss": False}, QUESTION, ANSWER], REST),
        ([QUESTION, ANSWER, GREETING], [*REST, ("assistant", "Hello.")]),
    ],
)
@pytest.mark.parametrize("others", [{}, PICTURE])
def test_an_answer_before_the_first_question_is_left_out_and_noted(
    turns: list[Any], left: list[Any], others: dict[str, Any]
) -> None:
    row = chat(*turns, **others)
    assert (row.problem, spoken(row)) == ("", left)
    assert row.notes == (("answer_left_out",) if len(left) < len(turns) else ())
    assert len(row.images) == len(others)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            {"conversations": [GREETING]},
            "the conversation has no turn of the user, so the answer has no question",
        ),
        (
            {"conversations": [SYSTEM, GREETING]},
            "the conversation has no turn of the user, so the answer has no question",
        ),
        (
            {"messages": [{"role": "assistant", "content": "a"}]},
            "the conversation has no turn of the user, so the answer has no question",
        ),
        (
            {
                **PICTURE,
                "conversations": [{**GREETING, "value": "<image>A dog."}, QUESTION, ANSWER],
            },
            "it shows a picture; move its `<image>`",
        ),
        (
            {"conversations": [{**QUESTION, "value": " "}, ANSWER]},
            "first turn of the user is empty",
        ),
        ({"texts": [{"user": "", "assistant": "a"}]}, "first turn of the user is empty"),
    ],
)
def test_answers_to_nothing_are_refused(value: dict[str, Any], problem: str) -> None:
    assert problem in row_of(value).problem


def test_a_picture_is_question_enough() -> None:
    row = row_of({**PICTURE, "texts": [{"user": "", "assistant": "A cat."}]})
    assert (row.problem, row.image_paths) == ("", ("a.png",))


def test_questions_with_answers_begin_with_the_user() -> None:
    assert row_of(ASKED).notes == ()
