"""ms-swift's `problem` is a question, and its `solution` the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.manifests.messages import RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.values import read_row
from tests.slurm_jobs.formats.manifests.builders import PICTURE, row_of, spoken

PROBLEM = {**PICTURE, "problem": "<image>Find x."}


@pytest.mark.parametrize(
    ("others", "answer", "ignored"),
    [
        ({"solution": "3"}, "3", ()),
        ({"solution": "3", "question": None, "answer": ""}, "3", ()),
        ({"answer": "3"}, "3", ()),
        ({"response": "3", "solution": "Because."}, "3", ("solution",)),
        ({"answers": ["4", "3", "3"]}, "3", ()),
    ],
    ids=repr,
)
def test_a_problem_is_the_question_of_its_answer(
    others: dict[str, Any], answer: str, ignored: tuple[str, ...]
) -> None:
    row = row_of({**PROBLEM, **others})
    assert (row.problem, row.image_paths, row.ignored) == ("", ("a.png",), ignored)
    assert spoken(row) == [("user", "Find x."), ("assistant", answer)]


def test_earlier_turns_come_before_the_problem() -> None:
    row = row_of({"problem": "Find x.", "solution": "3", "history": [["Hi.", "Hello."]]})
    assert spoken(row)[:3] == [("user", "Hi."), ("assistant", "Hello."), ("user", "Find x.")]


@pytest.mark.parametrize(
    ("others", "question"),
    [
        ({"question": "What is x?", "answer": "3"}, "What is x?"),
        ({"caption": "A triangle."}, "Describe the image."),
    ],
)
def test_a_problem_next_to_a_question_or_caption_is_not_read(
    others: dict[str, Any], question: str
) -> None:
    row = row_of({**PROBLEM, **others})
    assert (spoken(row)[0], row.ignored) == (("user", question), ("problem",))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"problem": "Find x."}, "neither `messages` nor `conversations`, nor an answer"),
        ({"solution": "3"}, "neither `messages` nor `conversations`, nor an answer"),
        ({"problem": ["Find x."], "solution": "3"}, "`problem` is a list, expected a string"),
        ({"problem": "Find x.", "solution": 3}, "`solution` is a number, expected a string"),
        ({"problem": "Which?", "solution": "A", "choices": ["x"]}, "`choices` holds choices"),
    ],
)
def test_a_row_that_lacks_one_of_them_is_refused(row: dict[str, Any], problem: str) -> None:
    assert problem in row_of({**PICTURE, **row}).problem


def test_columns_of_the_config_come_first() -> None:
    value = {**PICTURE, "problem": "Find x.", "words": "How long is x?", "solution": "3"}
    options = RowOptions(columns=Columns(prompt="words", text="solution"))
    row = read_row(RowOrigin(row=0, line=1, manifest=Path("m.jsonl")), value, options)
    assert (spoken(row)[0], row.ignored) == (("user", "How long is x?"), ("problem",))
