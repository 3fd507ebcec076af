"""TRL's `prompt` and `completion` as lists of messages.

Only the completion is learned: answers in the prompt are context (`completion_only_loss` of
`SFTConfig`, which is on for such rows). TRL accepts no list next to a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_jobs.formats.manifests.keys import (
    LOSS_KEYS,
    BadRowError,
    is_empty,
    kind_of,
    normal,
    shorten,
    unread_problem,
)
from slurm_jobs.formats.manifests.row_shapes.row_values import RowValues


def rewrite(row: RowValues) -> None:
    """Join the messages of both, and mark the answers of the prompt as not learned.

    Raises:
        BadRowError: one of them is no list of messages, the prompt ends with an answer, or the
            completion has a message of another role.
    """
    prompt_key = _key_of_messages(row.filled("prompt"), "prompt")
    if prompt_key is None or row.has_own_names:
        return
    completion_key = _key_of_messages(row.filled("text"), "completion")
    if completion_key is None:
        for key, value in row.others.items():
            unread = unread_problem(key, value, has_picture=True)
            if unread is not None:  # such as `chosen`
                raise BadRowError(unread.text)
        message = (
            f"`{prompt_key}` holds messages, and no `completion` holds those that are learned; "
            "write both as lists of messages, or all turns as `messages`"
        )
        raise BadRowError(message)
    prompt, completion = row.held["prompt"].pop(prompt_key), row.held["text"].pop(completion_key)
    if _is_assistants(prompt[-1]):
        message = (
            f"`{prompt_key}` ends with an answer, which the completion would continue; write the "
            "whole answer into the completion"
        )
        raise BadRowError(message)
    turns = [_as_context(turn) for turn in prompt]
    for turn in completion:
        if not _is_assistants(turn):
            message = (
                f"`{completion_key}` holds {shorten(turn)}, expected messages of the assistant; "
                "write a longer conversation as `messages`"
            )
            raise BadRowError(message)
        turns.append(turn)
    row.held["turns"] = {prompt_key: turns}


def _key_of_messages(values: Mapping[str, Any], name: str) -> str | None:
    """Return the key of this name if it holds a list of messages."""
    for key, value in values.items():
        if normal(key) == name and isinstance(value, list) and isinstance(value[0], Mapping):
            return key if "role" in value[0] else None
    return None


def _is_assistants(turn: Any) -> bool:
    role = turn.get("role") if isinstance(turn, Mapping) else None
    return isinstance(role, str) and role.strip().lower() in ("assistant", "gpt")


def _as_context(turn: Any) -> Any:
    """Return a message of the prompt, marked as not learned if it is an answer.

    Raises:
        BadRowError: it has a mark of its own.
    """
    if not _is_assistants(turn):
        return turn
    for key, value in turn.items():
        if normal(key) in LOSS_KEYS and not is_empty(value):
            message = (
                f"`{key}` of an answer in the prompt is {kind_of(value)}, but no answer there is "
                "learned; write all turns as `messages`, with their marks"
            )
            raise BadRowError(message)
    return {**turn, "loss": False}
