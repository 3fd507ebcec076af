"""The images that the first rows of a manifest name, as far as its beginning says. PURE.

For a look before anything is queued. What a row means is decided by the job; what cannot be
understood here is passed over.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slurm_jobs.common.image_places import lies_within, place_of
from slurm_jobs.common.inline_images import is_inline_image
from slurm_jobs.spec.files import Beginning

_TURNS = ("messages", "conversations")
_NAMES = ("path", "image", "url")
_BETWEEN = " \t\r\n,"
_LONGEST_PATH = 4096
"""What is longer is no path, but the picture itself, in base64."""


def images_outside(
    manifest: str, beginning: Beginning | None, root: str, *, also: Sequence[str] = ()
) -> tuple[str, str] | None:
    """The first image that lies elsewhere, and a folder that holds all such of the first rows.

    Args:
        manifest: its path, which says whether it is CSV.
        beginning: of the manifest; None where nobody can look.
        also: names that were found otherwise.
        root: absolute folder that relative paths start from, and all must lie in.

    Returns:
        The name as the manifest has it, and the folder; None if all that can be seen lie inside.
    """
    if beginning is None:
        return None
    placed = ((name, place_of(name, root)[0]) for name in (*_names(manifest, beginning), *also))
    elsewhere = [(name, file) for name, file in placed if not lies_within(file, root)]
    if not elsewhere:
        return None
    return elsewhere[0][0], posixpath.commonpath([posixpath.dirname(file) for _, file in elsewhere])


def _names(manifest: str, beginning: Beginning) -> Iterator[str]:
    text = beginning.data.decode("utf-8-sig", errors="replace")
    if manifest.lower().endswith(".csv"):
        yield from _of_csv(text, is_whole=beginning.is_whole)
        return
    for row in _json_values(text):
        if isinstance(row, Mapping):
            yield from _of_row(row)


def _of_csv(text: str, *, is_whole: bool) -> Iterator[str]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error:
        return
    column = "image_path"
    if not rows or column not in rows[0]:
        return
    index = rows[0].index(column)
    for row in rows[1:] if is_whole else rows[1:-1]:
        if index < len(row) and row[index].strip() and _is_path(row[index]):
            yield row[index]


def _json_values(text: str) -> Iterator[Any]:
    """Those of JSON lines, or of a list, up to the first that is damaged or cut off."""
    decoder, place = json.JSONDecoder(), 0
    if text.lstrip().startswith("["):
        place = text.index("[") + 1
    while True:
        while place < len(text) and text[place] in _BETWEEN:
            place += 1
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        yield value


def _of_row(row: Mapping[str, Any]) -> Iterator[str]:
    for key in ("images", "image"):
        listed = row.get(key)
        yield from _of_items(listed if isinstance(listed, list) else [listed])
    for key in _TURNS:
        turns = row.get(key)
        for turn in turns if isinstance(turns, list) else ():
            content = turn.get("content") if isinstance(turn, Mapping) else None
            if isinstance(content, list):
                yield from _of_items([item for item in content if _is_image(item)])


def _of_items(items: Sequence[Any]) -> Iterator[str]:
    for item in items:
        name = item
        if isinstance(item, Mapping):
            name = next((item[key] for key in _NAMES if item.get(key)), None)
        if _is_path(name):
            yield name


def _is_path(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) < _LONGEST_PATH and not is_inline_image(name)


def _is_image(item: object) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "image"
