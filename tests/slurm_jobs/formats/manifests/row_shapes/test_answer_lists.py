"""Lists of answers and captions, of which one is learned, and a note says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.manifests.messages import RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.values import read_row
from tests.slurm_jobs.formats.manifests.builders import PICTURE, row_of

ASKED = {**PICTURE, "question": "What is it?"}
ANNOTATED = [
    {"answer": "dog", "answer_id": 1, "answer_confidence": "maybe"},
    {"answer": "cat", "answer_id": 2, "answer_confidence": "yes"},
    {"answer": "cat", "answer_id": 3, "answer_confidence": "yes"},
]
SEVERAL = ("several_answers",)


@pytest.mark.parametrize(
    ("others", "answer", "notes"),
    [
        ({"answers": ["dog", "cat", "cat"]}, "cat", SEVERAL),
        ({"answers": ["dog", "cat"]}, "dog", SEVERAL),
        ({"answers": ["Nokia", "nokia", None, " "]}, "Nokia", SEVERAL),
        ({"answers": ["cat", "cat"]}, "cat", ()),
        ({"answers": ["cat"]}, "cat", ()),
        ({"answers": ("dog", "cat", "cat")}, "cat", SEVERAL),
        ({"answer": ["dog", "cat", "cat"]}, "cat", SEVERAL),
        ({"response": [{"text": "cat"}, {"text": "dog"}]}, "cat", SEVERAL),
        ({"answers": ["dog", "cat", "cat"], "multiple_choice_answer": "dog"}, "dog", SEVERAL),
        ({"answers": ["cat", "cat"], "multiple_choice_answer": "cat"}, "cat", ()),
        ({"answers": ["cat"], "multiple_choice_answer": ""}, "cat", ()),
        ({"multiple_choice_answer": "cat"}, "cat", ()),
        ({"answer": None, "answers": ["cat"]}, "cat", ()),
    ],
    ids=repr,
)
def test_the_most_frequent_answer_to_a_question_is_learned(
    others: dict[str, Any], answer: str, notes: tuple[str, ...]
) -> None:
    row = row_of({**ASKED, **others})
    assert (row.problem, row.ignored, row.notes) == ("", (), notes)
    assert [message.text for message in row.messages] == ["What is it?", answer]


def test_unread_keys_of_an_annotation_are_counted() -> None:
    row = row_of({**ASKED, "answers": ANNOTATED})
    assert (row.messages[-1].text, row.notes) == ("cat", SEVERAL)
    assert row.ignored == ("answers[].answer_id", "answers[].answer_confidence")


def test_as_many_captions_as_pictures_belong_to_one_each() -> None:
    row = row_of({"images": ["a.jpg", "b.jpg"], "captions": ["A cat.", "A dog."]})
    assert row.problem.startswith("`captions` has as many texts as `images` has pictures, 2; write")
    asked = {"images": ["a.jpg", "b.jpg"], "question": "Alike?", "answers": ["no", "not at all"]}
    assert row_of(asked).problem == ""


@pytest.mark.parametrize("key", ["captions", "caption", "text"])
def test_the_first_caption_is_learned(key: str) -> None:
    row = row_of({**PICTURE, key: ["A cat.", "A pet.", "A pet."]})
    assert (row.problem, row.messages[-1].text) == ("", "A cat.")
    assert row.notes == ("several_captions",)
    assert row_of({**PICTURE, key: ["A cat."]}).notes == ()


def test_a_list_that_columns_names_is_read() -> None:
    origin = RowOrigin(row=0, line=1, manifest=Path("m.jsonl"))
    options = RowOptions(columns=Columns(text="gold"))
    row = read_row(origin, {**ASKED, "gold": ["dog", "cat", "cat"]}, options)
    assert (row.problem, row.messages[-1].text, row.notes) == ("", "cat", SEVERAL)


def test_an_answer_of_its_own_comes_before_lists() -> None:
    row = row_of({**ASKED, "answer": "cat", "answers": ["dog"], "multiple_choice_answer": "dog"})
    assert (row.messages[-1].text, row.notes) == ("cat", ())
    assert set(row.ignored) == {"answers", "multiple_choice_answer"}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({**ASKED, "answers": [1, 2]}, "`answers` holds 1, expected a list of texts"),
        ({**ASKED, "answers": ["cat", ["dog"]]}, "`answers` holds ['dog'], expected a list"),
        ({**ASKED, "answers": [{"answer": "cat", "text": "dog"}]}, "expected a list of texts"),
        ({**ASKED, "answers": [{"label": "cat"}]}, "expected a list of texts"),
        ({**ASKED, "answers": [{"answer": "cat", "video": "v.mp4"}]}, "`video` holds video"),
        ({**ASKED, "answers": [" "]}, "`answers` holds no text"),
        ({**ASKED, "answers": ["A"], "choices": ["A", "B"]}, "`choices` holds choices"),
        ({**ASKED, "answer": "cat", "caption": ["A cat."]}, "`caption` is a list, expected a st"),
        ({**PICTURE, "answers": ["cat"]}, "`answers` is a list of answers; set `columns: {te"),
        ({"caption": ["A cat."]}, "no image: neither a path nor bytes"),
    ],
    ids=repr,
)
def test_lists_without_one_meaning_are_refused(row: dict[str, Any], problem: str) -> None:
    assert problem in row_of(row).problem
