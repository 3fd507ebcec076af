"""Limit on text of foreign origin in messages, records and lists.

A row of a manifest, an exception or a cell of a table may hold a whole picture. The text that is
recorded or printed keeps its beginning, which identifies it, and its end, where a message has
its remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_LINE_CHARS = 2000
"""Longest line of foreign text in a message, a record or a list of rejects."""
MAX_LINES = 1000
"""Most lines of one message."""
_HEAD_SHARE = 0.75
_LONGEST_WORD_CHARS = 256
"""Length up to which a word at the cut is left out: half of a secret is not recognised as one."""


def truncated(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Return the text, its middle replaced by the number of characters left out if it is longer.

    The result has at most `max_chars` characters, and is returned unchanged by a second call.
    """
    if len(text) <= max_chars:
        return text
    room = max_chars - len(_gap(len(text)))
    num_head = int(room * _HEAD_SHARE)
    head, tail = _to_blank(text[:num_head]), text[len(text) - (room - num_head) :]
    tail = _to_blank(tail[::-1])[::-1]
    return f"{head}{_gap(len(text) - len(head) - len(tail))}{tail}"


def truncated_lines(text: str) -> str:
    """Return the text with each line truncated, and no more than `MAX_LINES` lines."""
    if len(text) <= MAX_LINE_CHARS:
        return text
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        half = MAX_LINES // 2
        left_out = f"... ({len(lines) - 2 * half:,} lines left out) ..."
        lines = [*lines[:half], left_out, *lines[len(lines) - half :]]
    return "\n".join(map(truncated, lines))


def _gap(num_chars: int) -> str:
    return f" ... ({num_chars:,} characters left out) ... "


def _to_blank(text: str) -> str:
    """Remove the word at the end, unless it is a very long one."""
    if len(text) <= _LONGEST_WORD_CHARS:
        return text
    last = max(text.rfind(blank, len(text) - _LONGEST_WORD_CHARS) for blank in " \t\n")
    return text if last < 0 else text[:last]


def truncated_values(value: Any) -> Any:
    """Return JSON values with each text, and each name of a mapping, truncated line by line."""
    if isinstance(value, str):
        return truncated_lines(value)
    if isinstance(value, Mapping):
        return {truncated(str(name)): truncated_values(entry) for name, entry in value.items()}
    return [truncated_values(entry) for entry in value] if isinstance(value, list) else value
