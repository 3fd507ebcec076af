"""The columns that a CSV manifest must have: what `check` and the reader of its rows agree on."""

from __future__ import annotations

from collections.abc import Sequence

CSV_COLUMNS = ("image_path", "text")


def wrong_columns(header: Sequence[str]) -> str:
    """What is wrong with the cells of a manifest's first line; empty if it names each once."""
    missing = [name for name in CSV_COLUMNS if name not in header]
    twice = [name for name in CSV_COLUMNS if header.count(name) > 1]
    if not missing and not twice:
        return ""
    wrong = f"{', '.join(missing)} missing" if missing else f"{', '.join(twice)} named twice"
    return (
        f"column {wrong}; the first line must name the columns `image_path` and `text`, each "
        f"once, with a comma between, found: {', '.join(header) or 'nothing'}"
    )
