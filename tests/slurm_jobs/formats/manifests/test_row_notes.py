"""Answers that are used but doubtful."""

from __future__ import annotations

from typing import get_args

import pytest

from slurm_jobs.formats.manifests.row_notes import NOTE_NAMES, NOTE_TEXTS, RowNote, answer_note
from tests.slurm_jobs.formats.manifests.builders import (
    ANSWER,
    ASKED,
    PICTURE,
    QUESTION,
    chat,
    row_of,
)

PAGE = "<!DOCTYPE html><html><body>404 Not Found</body></html>"


@pytest.mark.parametrize("text", ["nan", "NaN", "None", " None\n", "null", "<NA>"])
def test_missing_values_as_text_are_noted_and_learned(text: str) -> None:
    rows = [
        row_of({**PICTURE, **ASKED, "answer": text}),
        row_of({**PICTURE, "caption": text}),
        chat(QUESTION, {**ANSWER, "value": text}),
    ]
    for row in rows:
        assert (row.problem, row.notes) == ("", ("missing_value",))
        assert row.messages[-1].text == text


def test_words_that_only_resemble_missing_values_are_not_noted() -> None:
    assert [answer_note(text, is_caption=True) for text in ("none", "Nan bread", "No", "0")] == (
        [None] * 4
    )


def test_an_html_page_is_doubtful_only_as_a_caption() -> None:
    assert row_of({**PICTURE, "caption": f"\n{PAGE}"}).notes == ("web_page",)
    asked = row_of({**PICTURE, **ASKED, "answer": PAGE})  # a screenshot, and its source
    assert (asked.problem, asked.notes) == ("", ())


def test_an_answer_that_is_not_learned_is_not_noted() -> None:
    unlearned = {**ANSWER, "value": "nan", "loss": False}
    assert chat(QUESTION, unlearned, QUESTION, ANSWER).notes == ()


def test_every_note_has_its_text_and_name() -> None:
    assert set(NOTE_TEXTS) == set(NOTE_NAMES) == set(get_args(RowNote))
