"""The example of a row without a picture in messages."""

from __future__ import annotations

from slurm_jobs.formats.manifests.text_rows import TextRow, first_text_row, text_alone
from tests.slurm_jobs.formats.manifests.builders import ASKED, PICTURE, row_of


def test_only_rows_without_any_picture_have_a_first_text_row() -> None:
    text, seen = row_of(ASKED), row_of({**PICTURE, **ASKED})
    assert first_text_row([]) is None
    assert first_text_row([text, seen]) is None
    assert first_text_row([text, text]) == TextRow(place="m.jsonl:7", keys=("question", "answer"))


def test_a_row_of_many_long_keys_makes_a_short_message() -> None:
    row = row_of({**ASKED, **{f"{number}{'k' * 10_000}": 1 for number in range(1000)}})
    assert len(text_alone("none has", TextRow.of(row))) < 1500


def test_without_an_example_the_message_has_the_remedy() -> None:
    message = text_alone("none of 3 samples has", None, remedy="run it again")
    assert message.startswith("none of 3 samples has a picture that is read")
    assert message.endswith("if text alone is meant, run it again")
