"""Questions and answers in the format of VQA v2: two files, joined by `question_id`.

The answer that is learned is `multiple_choice_answer`, the most frequent of the ten that people
gave. Source: visualqa.org, "VQA Input Questions Format" and "VQA Annotation Format".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLUMNS = ("id", "image", "question", "answer")
_ANSWER = "multiple_choice_answer"


def is_questions(values: Mapping[str, Any]) -> bool:
    """Check for the file of questions."""
    return isinstance(values.get("questions"), list) and "annotations" not in values


def is_answers(values: Mapping[str, Any]) -> bool:
    """Check for the file of answers."""
    annotations = values.get("annotations")
    if not isinstance(annotations, list) or "images" in values:
        return False
    return all(isinstance(item, Mapping) and _ANSWER in item for item in annotations[:1])


def belong_together(questions: Mapping[str, Any], answers: Mapping[str, Any]) -> bool:
    """Check that two files are of the same split, and have the same questions."""
    if questions.get("data_subtype") != answers.get("data_subtype"):
        return False
    asked = {
        item.get("question_id") for item in questions["questions"] if isinstance(item, Mapping)
    }
    return any(item.get("question_id") in asked for item in answers["annotations"][:1])


def vqa_rows(questions: Mapping[str, Any], answers: Mapping[str, Any]) -> list[Any]:
    """Return a row for each question, with an empty answer if it has none."""
    by_question = {
        item.get("question_id"): item.get(_ANSWER)
        for item in answers["annotations"]
        if isinstance(item, Mapping)
    }
    rows: list[Any] = []
    for item in questions["questions"]:
        if not isinstance(item, Mapping):
            rows.append(item)
            continue
        number = item.get("question_id")
        rows.append(
            {
                "id": number,
                "image": _image_name(item.get("image_id"), questions.get("data_subtype")),
                "question": item.get("question"),
                "answer": by_question.get(number, ""),
            }
        )
    return rows


def _image_name(image_id: Any, subtype: Any) -> str:
    """Return the name of the picture's file: those of COCO have the split and twelve digits."""
    if isinstance(image_id, str):
        return image_id
    if not isinstance(image_id, int) or not isinstance(subtype, str):
        return ""
    return f"COCO_{subtype}_{image_id:012d}.jpg"
