"""Choice of the rows that are held out, by the bytes of their pictures.

It depends on nothing else: neither on the other rows, nor on a seed, nor on paths. So slices need
not know each other, and two data sets with the same share hold out the same pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import xxhash

from slurm_jobs.formats.manifests.messages import ManifestRow

Side = Literal["trained", "held_out", "partly_held_out"]

_HASH_CHARS = 16
"""Hexadecimal digits of the 64 bits that decide."""


def picture_hash(data: bytes) -> str:
    """Return the xxh3-128 of a picture's file, in hexadecimal."""
    return xxhash.xxh3_128_hexdigest(data)


def side_of_row(row: ManifestRow, pictures: Sequence[bytes], share: float) -> Side:
    """Return whether a row is trained on or held out, or neither because its pictures differ.

    Args:
        row: The row; its text decides if it has no picture.
        pictures: Content of the files of its pictures, as read.
        share: Share of all pictures that are held out.
    """
    contents = pictures or [_text_of(row).encode()]
    are_held_out = [_is_held_out(picture_hash(content), share) for content in contents]
    if all(are_held_out):
        return "held_out"
    return "partly_held_out" if any(are_held_out) else "trained"


def _is_held_out(digest: str, share: float) -> bool:
    return int(digest[:_HASH_CHARS], 16) / 16**_HASH_CHARS < share


def _text_of(row: ManifestRow) -> str:
    """Return all that is asked and answered; a system message may come from the config."""
    turns = (message for message in row.messages if message.role != "system")
    return "\n".join(f"{turn.role}: {turn.text}" for turn in turns)
