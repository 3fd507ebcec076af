"""Questions and answers in the format of VQA v2: two files, joined by `question_id`.

The answer that is learned is `multiple_choice_answer`, the most frequent of the ten that people
gave. Files without it have the ten `answers`, of which the reader of rows takes the most frequent.
Source: visualqa.org, "VQA Input Questions Format" and "VQA Annotation Format".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ANSWERS = ("multiple_choice_answer", "answers")
COLUMNS = ("id", "image", "question", *_ANSWERS)


def is_questions(values: Mapping[str, Any]) -> bool:
    """Check for the file of questions."""
    return isinstance(values.get("questions"), list) and "annotations" not in values


def is_answers(values: Mapping[str, Any]) -> bool:
    """Check for the file of answers."""
    annotations = values.get("annotations")
    if not isinstance(annotations, list) or "images" in values:
        return False
    return all(
        isinstance(item, Mapping) and "question_id" in item and not item.keys().isdisjoint(_ANSWERS)
        for item in annotations[:1]
    )


def belong_together(questions: Mapping[str, Any], answers: Mapping[str, Any]) -> bool:
    """Check that two files are of the same split, and share a question: one may be a part."""
    if questions.get("data_subtype") != answers.get("data_subtype"):
        return False
    asked = {
        item.get("question_id") for item in questions["questions"] if isinstance(item, Mapping)
    }
    annotations = [item for item in answers["annotations"] if isinstance(item, Mapping)]
    return any(item.get("question_id") in asked for item in annotations)


def vqa_problem(questions: Mapping[str, Any]) -> str | None:
    """Return why the pictures of questions are not known; None if each question has one."""
    asked: set[Any] = set()
    for item in questions["questions"]:
        if not isinstance(item, Mapping):
            continue
        number, image_id = item.get("question_id"), item.get("image_id")
        if number in asked:
            return f": two of its questions have the id {number}; give each an id of its own"
        asked.add(number)
        if not _image_name(image_id, questions):
            return (
                f": its question {number} has the image_id {image_id!r}, of which the picture's "
                "file is only known with a `data_subtype` (`val2014`) and the data_type mscoco; "
                "write the file's name as image_id"
            )
    return None


def vqa_rows(questions: Mapping[str, Any], answers: Mapping[str, Any]) -> list[Any]:
    """Return a row for each question, with an empty answer if it has none."""
    by_question = {}
    for item in answers["annotations"]:
        if isinstance(item, Mapping):
            given = {key: item[key] for key in _ANSWERS if key in item}
            by_question[item.get("question_id")] = given
    rows: list[Any] = []
    for item in questions["questions"]:
        if not isinstance(item, Mapping):
            rows.append(item)
            continue
        number = item.get("question_id")
        rows.append(
            {
                "id": number,
                "image": _image_name(item.get("image_id"), questions),
                "question": item.get("question"),
                **by_question.get(number, {"answer": ""}),
            }
        )
    return rows


def _image_name(image_id: Any, questions: Mapping[str, Any]) -> str:
    """Return the name of the picture's file: those of COCO have the split and twelve digits."""
    if isinstance(image_id, str):
        return image_id
    subtype, kind = questions.get("data_subtype"), questions.get("data_type", "mscoco")
    if not isinstance(image_id, int) or not isinstance(subtype, str) or kind != "mscoco":
        return ""
    return f"COCO_{subtype}_{image_id:012d}.jpg"
