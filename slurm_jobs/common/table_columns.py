"""The columns that a table of samples must have: what `check` and the reader of rows agree on."""

from __future__ import annotations

from collections.abc import Sequence

TURN_COLUMNS = ("messages", "conversations", "texts")
"""Any of them is a conversation; `images` or `image` beside it are its pictures."""

TABLE_COLUMNS = ("id", "image_path", "image", "images", "text", *TURN_COLUMNS)
"""All that are read."""


def wrong_table_columns(names: Sequence[str]) -> str:
    """What is wrong with the columns of a Parquet or `datasets` manifest; empty if nothing is."""
    twice = [name for name in TABLE_COLUMNS if names.count(name) > 1]
    if twice:
        return f"column {', '.join(twice)} named twice"
    if any(name in names for name in TURN_COLUMNS):
        return ""
    if "text" in names and ("image" in names or "image_path" in names):
        return ""
    return (
        f"columns of samples missing; there must be `messages`, `conversations` or `texts`, or "
        f"`text` with `image` or `image_path`, found: {', '.join(names) or 'nothing'}"
    )
