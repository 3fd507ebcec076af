"""Keys of a row that select learned turns, and keys and values that are pictures."""

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
)


@pytest.mark.parametrize(
    "selection",
    [
        {"mask": True},
        {"mask": False},
        {"mask": "true"},
        {"mask": [1, 0]},
        {"loss_mask": [0, 1]},
        {"answer_mask": 1},
        {"turn_mask": [False, True]},
        {"supervised_turns": [1]},
        {"supervised_turns": 3},
        {"supervised_turns": "last"},
        {"supervised_turns": 3.0},
        {"loss_turns": 2},
        {"train_turns": 2},
        {"loss_turn_ids": [1, 3]},
        {"loss_role": "assistant"},
        {"trainRoles": ["gpt"]},
        {"learned_answers": {"first": True}},
    ],
    ids=repr,
)
def test_a_key_that_selects_learned_turns_refuses_the_row(selection: dict[str, Any]) -> None:
    (key,) = selection
    for row in (
        row_of({**PICTURE, **ASKED, **selection}),
        chat(QUESTION, ANSWER, **PICTURE, **selection),
    ):
        assert f"`{key}` of a whole row is not supported" in row.problem


@pytest.mark.parametrize(
    "others",
    [
        *({"num_turns": 3}, {"mask": None}, {"split": "train"}, {"num_train_turns": 2}),
        *({"has_mask": True}, {"wearing_mask": True}, {"num_masks": 1}, {"mask_id": 1}),
        *({"mask_area": 1}, {"mask_label": 0}, {"mask": 0}, {"attention_mask": 1}),
        *({"answer_loss": 0.34}, {"response_loss": 1.2}, {"answer_loss": float("nan")}),
        *({"training_message": "x"}, {"masked_answer_id": "a_12"}, {"loss_turns_count": 2}),
    ],
    ids=repr,
)
def test_keys_that_select_nothing_leave_the_row(others: dict[str, Any]) -> None:
    assert row_of({**PICTURE, **ASKED, **others}).problem == ""


@pytest.mark.parametrize("others", [{"image_left": "0001"}, {"image_classes": ["a.png"]}])
def test_another_picture_is_one_by_its_name_or_value(others: dict[str, Any]) -> None:
    (key,) = others
    assert f"`{key}` names a picture" in row_of({**PICTURE, **ASKED, **others}).problem
