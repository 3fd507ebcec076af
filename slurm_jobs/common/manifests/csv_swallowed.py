"""Detection of CSV rows inside an unclosed quote: texts whose lines look like rows.

An unclosed quote ends at the next one, perhaps an inch mark a thousand rows later, and the result
is valid CSV. So the lines of each text are checked.
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
"""Fewest lines that look like rows, and from which they must outnumber the others."""


def find_row(lines: Sequence[str], num_columns: int, column: int) -> str:
    """Return a line that is a complete row, for a message; empty if there is none.

    `lines` are those of a text, except its first. A row has `num_columns` cells and names a picture
    in `column`, as rows do. Names without an ending count only if most lines have such names. Poems
    are not taken for rows, because their lines have blanks there.
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
    """Yield the cells of each line, parsed alone as far as possible."""
    for line in lines:
        try:
            yield next(csv.reader([line]), [])
        except csv.Error:
            yield []
