"""Facts about usable rows that a user should see: what was left out, and doubtful answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

RowNote = Literal[
    "answer_left_out", "missing_value", "several_answers", "several_captions", "web_page"
]

NOTE_TEXTS: Mapping[RowNote, str] = {
    "answer_left_out": (
        "the conversation begins with an answer before any turn of the user, which is left out "
        "because there is nothing that it answers"
    ),
    "missing_value": (
        "the answer is a word such as `nan` or `None`, which programs write where a value is "
        "missing; remove such rows unless the word is the answer"
    ),
    "several_answers": (
        "several answers are listed, and only `multiple_choice_answer`, or else the most frequent "
        "one, is learned; to learn all of them, write a row for each"
    ),
    "several_captions": (
        "several captions are listed, and only the first is learned; to learn all of them, write a "
        "row for each"
    ),
    "web_page": (
        "the caption is an HTML page, perhaps that of a failed download; remove such rows unless "
        "the model is to learn HTML"
    ),
}
"""What is said of rows with each note."""


NOTE_NAMES: Mapping[RowNote, str] = {
    "answer_left_out": "began with an answer, left out",
    "missing_value": "answer is `nan`, `None` or similar",
    "several_answers": "several answers, one learned",
    "several_captions": "several captions, first learned",
    "web_page": "caption is an HTML page",
}
"""Short form of each note, for a table of counts."""


def note_name(note: str) -> str:
    """Return the short form of a note; the word itself if another version wrote it."""
    return NOTE_NAMES.get(note, note)  # type: ignore[call-overload, no-any-return]


def note_text(note: RowNote, rows: str) -> str:
    """Return a note on some rows, such as `1 row` or `3 of the first 1,000 rows`."""
    return f"in {rows}, {NOTE_TEXTS[note]}"


_MISSING = frozenset({"nan", "NaN", "NAN", "None", "null", "NULL", "<NA>", "NaT", "undefined"})
"""Texts of missing values, as Python, pandas, SQL and JavaScript print them."""
_PAGE_STARTS = ("<!doctype html", "<html")


def answer_note(text: str, *, is_caption: bool) -> RowNote | None:
    """Return what is doubtful about an answer; a caption is one without a question."""
    if text.strip() in _MISSING:
        return "missing_value"
    if is_caption and text[:100].lstrip().lower().startswith(_PAGE_STARTS):
        return "web_page"
    return None
