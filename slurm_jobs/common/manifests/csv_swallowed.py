"""Rows of CSV that an open quote has swallowed: a text over lines with lines that look like rows.

A quote that nobody closed ends at the next one, be it an inch mark a thousand rows on, and what
comes of it is CSV without fault. So the lines of each text are looked at.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

from slurm_jobs.common.manifests.keys import shorten

_IMAGE_NAME = re.compile(
    r"\.(avif|bmp|gif|heic|jp2|jpe|jpeg|jpg|png|ppm|tif|tiff|webp)$", re.IGNORECASE
)
_FEWEST_LINES = 5
"""From which lines that look like rows outweigh those that do not."""


def find_row(lines: Sequence[str], num_columns: int, column: int) -> str:
    """A line that is a row by itself, for a message; empty if none is.

    `lines` are those of a text, but for its first. One is a row if it has `num_columns` cells and
    names a picture in `column`, where rows do; names without an ending are believed where most
    lines have such, and no poem is taken for rows, because its lines have blanks there.
    """
    if not lines:
        return ""
    found = []
    for line, cells in zip(lines, _cells(lines), strict=True):
        name = cells[column].strip() if len(cells) == num_columns else ""
        if _IMAGE_NAME.search(name):
            return shorten(line.rstrip())
        if name and not any(character.isspace() for character in name):
            found.append(line)
    is_most = len(lines) >= _FEWEST_LINES and 2 * len(found) > len(lines)
    return shorten(found[0].rstrip()) if is_most else ""


def _cells(lines: Sequence[str]) -> Iterator[list[str]]:
    """Of each line by itself, as far as it can be told."""
    for line in lines:
        try:
            yield next(csv.reader([line]), [])
        except csv.Error:
            yield []
