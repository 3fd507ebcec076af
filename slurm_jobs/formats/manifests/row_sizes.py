"""Sizes of the images of manifest rows, and the number of tokens that represent them.

`check` and `init` measure some rows by the headers of their images, before anything is queued.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_jobs.formats.manifests.messages import Content, ManifestRow
from slurm_jobs.formats.processors.image_plans import ImageRules, Size, UnfitImageError

ImageSize = Callable[[Content], Size | None]
"""Function that returns width and height of an image of a row; None if they cannot be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSize:
    """Properties of a row that determine its length."""

    images: tuple[Size, ...]
    num_text_bytes: int


def spread(num_items: int, most: int) -> list[int]:
    """Return the indices of at most `most` items, spread evenly over all of them."""
    if num_items <= most:
        return list(range(num_items))
    return [number * num_items // most for number in range(most)]


def pick_rows(rows: Sequence[ManifestRow], most: int) -> list[ManifestRow]:
    """Return rows, spread evenly over the given ones, with about `most` images together."""
    num_images = sum(len(row.images) for row in rows)
    num_rows = len(rows) if num_images <= most else max(1, most * len(rows) // num_images)
    return [rows[place] for place in spread(len(rows), num_rows)]


def measure(row: ManifestRow, image_size: ImageSize, *, most: int) -> RowSize | None:
    """Return the size of a row; None if an image cannot be measured, or it has too many."""
    if len(row.images) > most:
        return None
    sizes = [image_size(image) for image in row.images]
    images = tuple(size for size in sizes if size is not None)
    if len(images) < len(sizes):
        return None
    num_text_bytes = sum(len(message.text.encode(errors="replace")) for message in row.messages)
    return RowSize(images=images, num_text_bytes=num_text_bytes)


def image_tokens(row: RowSize, rules: ImageRules) -> int:
    """Return how many tokens represent the images of a row; an unfit image counts none."""
    num_tokens, num_images = 0, len(row.images)
    for size in row.images:
        with contextlib.suppress(UnfitImageError):
            plan = rules.plan(size, num_images=num_images)
            num_tokens += sum(count for _, count in plan.placeholder)
    return num_tokens
