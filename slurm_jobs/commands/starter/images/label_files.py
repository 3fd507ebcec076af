"""Detection of text files with labels of another task (boxes, keypoints). PURE."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_BETWEEN = re.compile(r"[\s,;|]+")
_HEADER = re.compile(r"\s*(?:imagesource|gsd)\s*:", re.IGNORECASE)
"""First lines of a DOTA file."""
_FEWEST = 4
"""Number of values of a box."""


def label_kind(text: str) -> str | None:
    """Return the kind of labels in a text, for a message; None if it may be a caption.

    YOLO, KITTI, DOTA and ICDAR are known by their numbers: most lines have at least four, which
    are at least half of what the line says, or begin it.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    rows = [_BETWEEN.split(line.strip().strip(",;|")) for line in lines if not _HEADER.match(line)]
    if not rows:
        return "a DOTA label (corners and class)" if lines else None
    if 2 * sum(_is_yolo(row) for row in rows) > len(rows):
        return "a YOLO label (class and box)"
    is_grid = len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])}
    if 2 * sum(_is_box(row, is_grid=is_grid) for row in rows) > len(rows):
        return "a label (numbers of a box or of points)"
    return None


def is_number(text: str) -> bool:
    """Check whether a text is one number: the index of a class, or a digit in words."""
    return _NUMBER.fullmatch(text.strip()) is not None


def _is_yolo(row: list[str]) -> bool:
    """Check for a class and coordinates from 0 to 1, as `0 0.5 0.5 0.2 0.3`."""
    coordinates = row[1:]
    if len(row) <= 2 or not all(map(_NUMBER.fullmatch, row)) or not row[0].isdecimal():
        return False
    is_fraction = any("." in value or "e" in value.lower() for value in coordinates)
    return is_fraction and all(0 <= float(value) <= 1 for value in coordinates)


def _is_box(row: list[str], *, is_grid: bool) -> bool:
    """Check for numbers of a box, with a class or a text.

    `is_grid`: all lines have as many fields. Whole numbers alone in one line are words, as in a
    picture of `1 2 3 4 5`.
    """
    are_numbers = [_NUMBER.fullmatch(value) is not None for value in row]
    count = sum(are_numbers)
    if count == len(row):
        has_fractions = sum("." in value for value in row) >= 2
        return count >= _FEWEST and (has_fractions or is_grid)
    return count >= _FEWEST and (2 * count >= len(row) or all(are_numbers[: 2 * _FEWEST]))
