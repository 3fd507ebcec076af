"""ms-swift's `conversation` of pairs becomes turns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.slurm_jobs.formats.manifests.builders import PICTURE, row_of, spoken

PAIRS = [
    {"human": "<image>What is it?", "assistant": "A cat."},
    {"human": "Which colour?", "assistant": "Black."},
]
TURNS = [
    ("user", "What is it?"),
    ("assistant", "A cat."),
    ("user", "Which colour?"),
    ("assistant", "Black."),
]
CHAT = [{"role": role, "content": text} for role, text in TURNS]


@pytest.mark.parametrize(
    "conversation",
    [
        PAIRS,
        json.dumps(PAIRS),
        [{"user": pair["human"], "gpt": pair["assistant"]} for pair in PAIRS],
        [{"human": pair["human"], "bot": pair["assistant"]} for pair in PAIRS],
        CHAT,
    ],
)
def test_pairs_become_turns_of_user_and_assistant(conversation: Any) -> None:
    row = row_of({**PICTURE, "conversation": conversation})
    assert (row.problem, spoken(row), row.image_paths) == ("", TURNS, ("a.png",))


def test_system_message_marks_and_unread_keys_are_those_of_other_turns() -> None:
    pairs = [{**PAIRS[0], "loss": False}, {**PAIRS[1], "mood": "calm"}]
    row = row_of({**PICTURE, "conversation": pairs, "system": "Be brief."})
    assert spoken(row) == [("system", "Be brief."), *TURNS]
    learned = [message.is_learned for message in row.messages if message.role == "assistant"]
    assert learned == [False, True]
    assert row.ignored == ("conversation[].mood",)


def test_turns_and_an_answer_under_other_keys_come_first() -> None:
    chat = row_of({**PICTURE, "messages": CHAT, "conversation": PAIRS[:1]})
    assert (spoken(chat), chat.ignored) == (TURNS, ("conversation",))
    asked = row_of({"question": "Why?", "answer": "So.", "conversation": PAIRS})
    assert (spoken(asked), asked.ignored) == (
        [("user", "Why?"), ("assistant", "So.")],
        ("conversation",),
    )


@pytest.mark.parametrize(
    ("conversation", "problem"),
    [
        ([{"human": "What?", "assistant": None}], "`content` of a turn is null"),
        ([{"human": None, "assistant": "A cat."}], "`content` of a turn is null"),
        ([{"question": "What?"}], "a turn without `user` and `assistant`"),
        ([{"human": "What?", "assistant": "A.", "tool_calls": [1]}], "`tool_calls` holds tools"),
        (["What?", "A cat."], "a turn without `user` and `assistant`"),
        ("[{'human': 'What?'}]", "the turns are text, but no valid JSON"),
        ("chat_12", "neither `messages` nor `conversations`"),
        (12, "neither `messages` nor `conversations`"),
    ],
    ids=repr,
)
def test_a_conversation_without_pairs_is_refused(conversation: Any, problem: str) -> None:
    assert problem in row_of({"conversation": conversation}).problem
