"""TRL's lists of messages: the completion is learned, answers in the prompt are context."""

from __future__ import annotations

from typing import Any

import pytest

from tests.slurm_jobs.formats.manifests.builders import PICTURE, row_of, spoken

Turn = dict[str, Any]


def user(content: object) -> Turn:
    return {"role": "user", "content": content}


def assistant(content: object, **others: object) -> Turn:
    return {"role": "assistant", "content": content, **others}


ASKED = user("What is it?")
DEEPER = [ASKED, assistant("A cat."), user("Which colour?")]
ANSWER = [assistant("Black.")]


def test_only_the_completion_is_learned() -> None:
    prompt = [{"role": "system", "content": "Be brief."}, *DEEPER]
    row = row_of({**PICTURE, "prompt": prompt, "completion": ANSWER})
    assert (row.problem, row.ignored, row.image_paths) == ("", (), ("a.png",))
    assert spoken(row) == [
        ("system", "Be brief."),
        ("user", "What is it?"),
        ("assistant", "A cat."),
        ("user", "Which colour?"),
        ("assistant", "Black."),
    ]
    learned = [message.is_learned for message in row.messages if message.role == "assistant"]
    assert learned == [False, True]


@pytest.mark.parametrize(
    "prompt",
    [
        [ASKED],
        [user([{"type": "image"}, {"type": "text", "text": "What is it?"}])],
        [user([{"type": "image", "text": None}, {"type": "text", "text": "What is it?"}])],
    ],
)
def test_pictures_come_where_a_part_marks_them_else_first(prompt: list[Turn]) -> None:
    row = row_of({"images": ["a.png"], "prompt": prompt, "completion": ANSWER})
    assert [item.value for item in row.messages[0].content] == ["a.png", "What is it?"]


def test_texts_under_both_keys_are_a_question_and_its_answer() -> None:
    row = row_of({**PICTURE, "prompt": "What is it?", "completion": "A cat."})
    assert spoken(row) == [("user", "What is it?"), ("assistant", "A cat.")]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"prompt": [ASKED], "completion": "A cat."}, "`prompt` holds messages, and no `completio"),
        ({"prompt": "What is it?", "completion": ANSWER}, "`completion` holds {'role': 'assistan"),
        ({"prompt": [ASKED]}, "`prompt` holds messages, and no `completion`"),
        ({"prompt": [ASKED], "solution": "A cat."}, "`prompt` holds messages, and no `completion`"),
        ({"prompt": [ASKED], "chosen": ANSWER, "rejected": ANSWER}, "`chosen` holds preference"),
        ({"prompt": [*DEEPER, *ANSWER], "completion": ANSWER}, "`prompt` ends with an answer"),
        ({"prompt": [ASKED], "completion": DEEPER}, "`completion` holds {'role': 'user', "),
        (
            {"prompt": [ASKED, assistant("A cat.", loss=True), ASKED], "completion": ANSWER},
            "`loss` of an answer in the prompt is true or false, but no answer there is learned",
        ),
        ({"prompt": [ASKED], "completion": ANSWER, "label": True}, "is preference data"),
        ({"prompt": [ASKED], "completion": ANSWER, "label": 1}, "is preference data"),
        ({"prompt": [ASKED], "completion": ANSWER, "tools": [{"name": "look"}]}, "holds tools"),
        (
            {"prompt": [ASKED], "completion": ANSWER, "chat_template_kwargs": {"a": 1}},
            "holds settings of the template",
        ),
        (
            {"prompt": [ASKED, {"role": "tool", "content": "7"}], "completion": ANSWER},
            "role 'tool'; allowed are",
        ),
        ({"prompt": [ASKED], "completion": ANSWER, "history": [["a", "b"]]}, "`history` holds ear"),
        ({"prompt": [ASKED, "What?"], "completion": ANSWER}, "a turn without `role` and `content`"),
    ],
)
def test_other_rows_with_a_list_of_messages_are_refused(row: dict[str, Any], problem: str) -> None:
    assert problem in row_of(row).problem
