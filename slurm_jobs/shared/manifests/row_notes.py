"""Facts about usable rows that a user should see: what was left out, and doubtful answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

RowNote = Literal["answer_left_out", "missing_value", "web_page"]

NOTE_TEXTS: Mapping[RowNote, str] = {
    "answer_left_out": (
        "begin with an answer before any turn of the user, which is left out because there is "
        "nothing that it answers"
    ),
    "missing_value": (
        "have an answer such as `nan` or `None`, which programs write where a value is missing; "
        "remove these rows unless the word is the answer"
    ),
    "web_page": (
        "have an HTML page as their caption, perhaps that of a failed download; remove these rows "
        "unless the model is to learn HTML"
    ),
}
"""What is said of rows with each note, after their number."""

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
