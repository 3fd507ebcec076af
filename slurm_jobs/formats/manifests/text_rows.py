"""Data in which no row has a picture: mostly the key of the picture is not one that is read.

The outcome is judged, not the names of keys: a picture may be in `dicom_path`, or only named by a
number in `image_id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_jobs.formats.manifests.messages import ManifestRow

_MAX_KEYS, _MAX_KEY_CHARS = 12, 60
"""Most keys of a row that a message lists, and the characters of each: a manifest may have any."""

_NAME_THE_KEY = "If a key holds the picture, set `columns: {image: KEY}`"


@dataclass(frozen=True, kw_only=True, slots=True)
class TextRow:
    """Row without a picture, as an example in messages."""

    place: str
    """File and line."""
    keys: tuple[str, ...]
    """The first keys of the row."""

    @classmethod
    def of(cls, row: ManifestRow) -> TextRow:
        """Return the example that a row is."""
        keys = tuple(key[:_MAX_KEY_CHARS] for key in row.keys[:_MAX_KEYS])
        return cls(place=str(row.origin), keys=keys)


def first_text_row(rows: Sequence[ManifestRow]) -> TextRow | None:
    """Return the first row if none has a picture; None if any has one, or there are no rows."""
    if not rows or any(row.images for row in rows):
        return None
    return TextRow.of(rows[0])


def text_alone(rows: str, first: TextRow | None, *, remedy: str = "set `text_only: true`") -> str:
    """Return why data without pictures is refused, and what to do.

    Args:
        rows: which rows have none: `none of the first 40 rows has`.
        first: the first of them; None if unknown.
        remedy: what to do if text alone is meant.
    """
    return (
        f"{rows} a picture that is read, so the model would learn to answer without seeing."
        f"{_example(first)} {_NAME_THE_KEY}; if text alone is meant, {remedy}"
    )


def text_so_far(rows: str, first: TextRow | None, *, is_learned: bool = True) -> str:
    """Return that some rows have no picture, where others may have one.

    Args:
        rows: which rows have none, as for `text_alone`.
        first: the first of them.
        is_learned: the rows become a data set, which `consolidate` refuses if none has a picture.
    """
    verdict = ""
    if is_learned:
        verdict = ". If no other row has one, `consolidate` fails unless `text_only` is true"
    return f"{rows} a picture that is read.{_example(first)} {_NAME_THE_KEY}{verdict}"


def _example(first: TextRow | None) -> str:
    if first is None:
        return ""
    names = ", ".join(f"`{key}`" for key in first.keys)
    return f" The first, {first.place}, has the keys {names}."
