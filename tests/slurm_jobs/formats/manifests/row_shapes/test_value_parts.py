"""Parts of LLaMA-Factory v1, which have a text or a picture under `value`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.slurm_jobs.formats.manifests.builders import row_of, spoken

SHOWN = [{"type": "image_url", "value": "a.png"}, {"type": "text", "value": "What is it?"}]
CAT = [{"type": "text", "value": "A cat."}]


def rows_turns(question: Any, answer: Any, **marks: object) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": question, "loss_weight": 0.0},
            {"role": "assistant", "content": answer, **marks},
        ]
    }


@pytest.mark.parametrize(
    ("marks", "is_learned"),
    [
        ({}, True),
        ({"loss_weight": 1.0}, True),
        ({"loss_weight": 1}, True),
        ({"loss_weight": 0}, False),
    ],
)
def test_values_are_texts_and_pictures(marks: dict[str, Any], *, is_learned: bool) -> None:
    row = row_of(rows_turns(SHOWN, CAT, **marks))
    assert (row.problem, row.ignored, row.image_paths) == ("", (), ("a.png",))
    assert spoken(row) == [("user", "What is it?"), ("assistant", "A cat.")]
    assert row.messages[-1].is_learned is is_learned


def test_keys_that_a_table_fills_with_null_change_nothing() -> None:
    parts = [
        {"type": "image_url", "value": "a.png", "text": None, "image_url": None},
        {"type": "text", "value": "What is it?", "text": None, "image_url": None},
    ]
    assert row_of(rows_turns(parts, CAT)) == row_of(rows_turns(SHOWN, CAT))


@pytest.mark.parametrize(
    ("question", "answer", "problem"),
    [
        ([{"type": "video_url", "value": "v.mp4"}], CAT, "content item of type 'video_url'"),
        (SHOWN, [{"type": "reasoning", "value": "Hm."}, *CAT], "content item of type 'reasoning'"),
        (SHOWN, [{"type": "tool_call", "value": "{}"}], "content item of type 'tool_call'"),
        ([{"type": "text", "value": 3}], CAT, "content item of type 'text'"),
        ([{"type": ["text"], "value": "a"}], CAT, "content item of type ['text']"),
        ([{"type": "image_url", "value": ["a.png"]}], CAT, "an image is ['a.png'], expected"),
        ([{"type": "image_url", "value": "a.png", "url": "b.png"}], CAT, "with several names"),
    ],
)
def test_parts_of_other_types_and_values_are_refused(
    question: Any, answer: Any, problem: str
) -> None:
    assert problem in row_of(rows_turns(question, answer)).problem


@pytest.mark.parametrize("weight", [0.5, 0.1, 2.0, -1])
def test_a_weight_between_learned_and_not_is_refused(weight: float) -> None:
    problem = row_of(rows_turns(SHOWN, CAT, loss_weight=weight)).problem
    assert f"`loss_weight` of a turn is {weight}; allowed are true, false, 1 and 0" in problem


def test_a_users_turn_with_a_weight_is_refused() -> None:
    row = rows_turns(SHOWN, CAT)
    row["messages"][0]["loss_weight"] = 1.0
    assert "`loss_weight` marks a user's turn for training" in row_of(row).problem
