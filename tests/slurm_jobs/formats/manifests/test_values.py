"""Values of a row: pictures that are empty, lists of answers, described pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.manifests.messages import RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.values import TOO_DEEP, read_row
from tests.slurm_jobs.formats.manifests.builders import (
    ANSWER,
    ASKED,
    PICTURE,
    QUESTION,
    chat,
    row_of,
)

EMPTY_PICTURES: list[dict[str, Any]] = [
    {"image": ""},
    {"image": " "},
    {"image": None},
    {"image": "[]"},
    {"images": []},
    {"images": [""]},
    {"images": [None]},
    {"images": ["", None]},
    {"images": [{"path": None, "bytes": None}]},
    {"image": {"path": ""}},
    {"image": "", "images": [None]},
]


@pytest.mark.parametrize("empty", EMPTY_PICTURES, ids=repr)
def test_an_empty_picture_is_a_row_of_text_alone(empty: dict[str, Any]) -> None:
    for row in (row_of({**empty, **ASKED}), chat(QUESTION, ANSWER, **empty)):
        assert (row.problem, row.images) == ("", ())


@pytest.mark.parametrize("empty", EMPTY_PICTURES, ids=repr)
def test_an_empty_picture_is_missing_where_the_text_needs_one(empty: dict[str, Any]) -> None:
    assert "picture" in row_of({**empty, "caption": "A cat."}).problem or (
        "no image" in row_of({**empty, "caption": "A cat."}).problem
    )
    marked = chat({**QUESTION, "value": "<image>What?"}, ANSWER, **empty)
    assert marked.problem == "the text has 1 place for images, and the row lists 0 images"


@pytest.mark.parametrize("images", [["", "a.png"], [None, "a.png"]])
def test_a_list_with_a_gap_is_refused(images: list[Any]) -> None:
    assert "image 1 of 2 listed has neither" in chat(QUESTION, ANSWER, images=images).problem
    assert "image 1 of 2 listed has neither" in row_of({**ASKED, "images": images}).problem


def test_another_picture_is_read_where_one_column_is_empty() -> None:
    row = row_of({**ASKED, "image": "", "image_path": "b.png"})
    assert (row.problem, row.image_paths) == ("", ("b.png",))


def test_an_empty_picture_next_to_an_unread_one_is_refused() -> None:
    row = row_of({**ASKED, "image": "", "photo": "b.png"})
    assert "`photo` names a picture, which is not read, and the row has no other" in row.problem


def test_a_mask_that_is_a_picture_is_refused_as_one() -> None:
    for mask in ("mask.png", [[0, 1], [1, 2]]):
        row = row_of({**PICTURE, **ASKED, "mask": mask})
        assert "`mask` names a picture, which is not read" in row.problem


@pytest.mark.parametrize(
    "answers",
    [
        {"gold_answers": ["cat", "dog"]},
        {"captions": ["cat", "dog"]},
        {"human": [{"text": "cat"}, {"text": "dog"}]},
    ],
)
def test_an_unread_list_next_to_a_question_is_one_of_answers(answers: dict[str, Any]) -> None:
    (key,) = answers
    problem = row_of({**PICTURE, "question": "What is it?", **answers}).problem
    assert problem == (
        f"`{key}` is a list of answers; set `columns: {{text: {key}}}` to learn one of them, or "
        "write a row for each"
    )


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"prompt": ["What?", "Which?"], "answer": "A cat."}, "`prompt` is a list, expected a str"),
        ({"question": "How many?", "answer": 3}, "`answer` is a number, expected a string; write"),
        ({"system": {"a": 1}, **ASKED}, "`system` is an object, expected a string"),
    ],
)
def test_words_that_are_no_text_are_refused(row: dict[str, Any], problem: str) -> None:
    assert row_of({**PICTURE, **row}).problem.startswith(problem)


def test_questions_with_answers_next_to_a_picture_are_rows_or_turns() -> None:
    pairs = [{"question": "What is it?", "answer": "A cat."}]
    assert row_of({**PICTURE, "qa": pairs}).problem == (
        "`qa` holds questions with answers; write a row for each, or the turns of one conversation "
        "as `messages`"
    )


@pytest.mark.parametrize("answers", [[], "cat", {"a": 1}, [None]])
def test_what_is_no_list_of_answers_is_not_called_one(answers: Any) -> None:
    problem = row_of({**PICTURE, "question": "What?", "answers": answers}).problem
    assert problem.startswith("neither `messages` nor `conversations`, nor an answer")


def test_a_list_of_rows_alone_is_the_manifest() -> None:
    rows = [{**PICTURE, "text": "A cat."}, {**PICTURE, "text": "A dog."}]
    assert row_of({"data": rows}).problem == (
        "`data` holds a list of rows; write that list alone as the manifest"
    )


@pytest.mark.parametrize(
    "others",
    [
        {"image_classes": ["cat", "dog"]},
        {"image_classes": [1, 2]},
        {"image_class": "cat"},
        {"image_tags": ["indoor"]},
        {"photo_labels": ["cat"]},
        {"imageLabel": "cat"},
    ],
)
def test_what_is_in_a_picture_is_no_picture(others: dict[str, Any]) -> None:
    (key,) = others
    row = row_of({**PICTURE, **ASKED, **others})
    assert (row.problem, row.ignored) == ("", (key,))


def test_a_row_too_deep_to_search_for_ignored_keys_is_refused() -> None:
    value: Any = 1
    for _ in range(2 * sys.getrecursionlimit()):
        value = [value]
    options = RowOptions(columns=Columns(ignore=("note",)))
    origin = RowOrigin(row=6, line=7, manifest=Path("m.jsonl"))
    row = read_row(origin, {**PICTURE, "caption": "A cat.", "x": value, "note": 1}, options)
    assert row.problem == TOO_DEEP
