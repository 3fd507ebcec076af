"""Several answers or captions of one picture, of which one is learned.

VQA, TextVQA and VizWiz have the answers of ten annotators, DocVQA the accepted spellings, COCO and
Flickr30k several captions. VQA's authors name the answer to learn in `multiple_choice_answer`, the
most frequent one. ms-swift takes the first of a list, which is right for captions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.formats.manifests.keys import (
    SPELLINGS,
    BadRowError,
    Meaning,
    is_empty,
    normal,
    shorten,
    unread_keys,
)
from slurm_jobs.formats.manifests.row_shapes.row_values import RowValues

KEYS: Mapping[str, Meaning] = dict.fromkeys(
    ["multiple_choice_answer", "answers", "captions"], "text"
)

_TEXT_KEYS = frozenset(name for name, meaning in SPELLINGS.items() if meaning == "text")


def rewrite(row: RowValues) -> None:
    """Take one text of a list: the most frequent next to a question, else the first.

    Of equally frequent ones the first is taken. A note is added if they differ.

    Raises:
        BadRowError: an item of the list is no text.
    """
    has_question = bool(row.filled("prompt"))
    if not row.filled("text") and not row.has_own_names:
        _take_other_key(row, has_question=has_question)
    filled = row.filled("text")
    key, values = next(iter(filled.items()), ("", None))
    if len(filled) > 1 or not isinstance(values, list | tuple):
        return
    if not has_question:
        _check_one_picture_each(row, key, values)
    texts = _texts(row, key, values)
    row.held["text"][key] = Counter(texts).most_common(1)[0][0] if has_question else texts[0]
    _note_difference(row, texts, has_question=has_question)


def _check_one_picture_each(row: RowValues, key: str, texts: Sequence[Any]) -> None:
    """Raise on as many texts as pictures, because each then belongs to one picture.

    Raises:
        BadRowError: the lists are equally long, and have more than one item.
    """
    for name, pictures in row.filled("image").items():
        if isinstance(pictures, list | tuple) and len(pictures) == len(texts) > 1:
            message = (
                f"`{key}` has as many texts as `{name}` has pictures, {len(texts)}; write a row "
                "for each picture with its text"
            )
            raise BadRowError(message)


def _take_other_key(row: RowValues, *, has_question: bool) -> None:
    """Give the meaning of an answer to a key that has it only in rows of this shape."""
    answers_key = row.other_key("answers" if has_question else "captions")
    if answers_key is not None and not isinstance(row.others[answers_key], list | tuple):
        answers_key = None
    choice_key = row.other_key("multiple_choice_answer") if has_question else None
    if choice_key is not None and isinstance(row.others[choice_key], str):
        row.held["text"] = {choice_key: row.others.pop(choice_key)}
        if answers_key is not None:
            texts = _texts(row, answers_key, row.others.pop(answers_key))
            _note_difference(row, texts, has_question=True)
    elif answers_key is not None:
        row.held["text"] = {answers_key: row.others.pop(answers_key)}


def _texts(row: RowValues, key: str, values: Sequence[Any]) -> list[str]:
    """Return the texts of a list, without blank ones.

    Raises:
        BadRowError: an item is no text, nor a mapping with one, or all are blank.
    """
    texts: list[str] = []
    for item in values:
        text = item
        if isinstance(item, Mapping):
            text = _text_of(item)
            row.ignored += [f"{key}[].{name}" for name, _ in unread_keys(item, _TEXT_KEYS)]
        if isinstance(text, str) and text.strip():
            texts.append(text)
        elif not is_empty(text) and not isinstance(text, str):
            message = (
                f"`{key}` holds {shorten(item)}, expected a list of texts; write the answer to "
                "learn as a text"
            )
            raise BadRowError(message)
    if not texts:
        message = f"`{key}` holds no text"
        raise BadRowError(message)
    return texts


def _text_of(item: Mapping[str, Any]) -> Any:
    """Return the text in a mapping such as `{"answer": "cat", "answer_id": 1}`.

    A mapping without one, or with several, is returned as it is.
    """
    texts = []
    for key, value in item.items():
        if normal(key) in _TEXT_KEYS and not is_empty(value):
            texts.append(value)
    return texts[0] if len(texts) == 1 else item


def _note_difference(row: RowValues, texts: Sequence[str], *, has_question: bool) -> None:
    if len(set(texts)) > 1:
        row.notes.append("several_answers" if has_question else "several_captions")
