"""Images that a row lists, in any of its columns."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.formats.manifests.keys import (
    FILE_NAMES,
    BadRowError,
    is_metadata,
    looks_like_picture,
    normal,
    says_nothing,
    shorten,
    unread_problem,
)
from slurm_jobs.formats.manifests.messages import Content
from slurm_jobs.formats.manifests.turns import IMAGE_KEYS, INDEX_KEYS, image_of

WEB = ("http://", "https://")


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedPictures:
    """Images of a row, and what else its columns of images have."""

    images: Sequence[Content]
    ignored: Sequence[str]
    """Columns of images that are not read, and unread keys of images."""
    file_columns: Collection[str]
    """Columns of file names, such as `file_name`, that name images here."""


def listed_pictures(
    columns: Mapping[str, Any], others: Mapping[str, Any], ignore: Collection[str]
) -> ListedPictures:
    """Return the images that a row lists.

    Exporters write several columns, and leave all but one null or empty. A row in which all are
    empty has no picture: InternVL's format writes `image: ""` for text alone.

    Args:
        columns: columns of pictures.
        others: columns without a meaning, among which those of file names are used, too.
        ignore: `columns.ignore` of the config.

    Raises:
        BadRowError: two columns contradict each other, or an image has content that is not read.
    """
    filled = {key: value for key, value in columns.items() if not _is_empty_picture(value)}
    by_column = {key: _images(value) for key, value in filled.items()}
    ignored: list[str] = []
    for key, value in filled.items():
        ignored += _unread_keys(key, value, ignore)
    not_web = {key: images for key, images in by_column.items() if not _are_web(key, images)}
    if not_web:
        ignored += [key for key in by_column if key not in not_web]
        by_column = not_web
    file_columns = {
        key
        for key, value in others.items()
        if normal(key) in FILE_NAMES and looks_like_picture(value)
    }
    by_column |= {key: _images(value) for key, value in others.items() if key in file_columns}
    _check_agreement(by_column, file_columns)
    images: Sequence[Content] = next(iter(by_column.values()), ())
    for candidate in by_column.values():
        if any(image.data for image in candidate):
            images = candidate
            break
    return ListedPictures(images=images, ignored=ignored, file_columns=file_columns)


def _is_empty_picture(value: Any) -> bool:
    """Check whether the value of a column of pictures names none: `""`, `[null]`, `[""]`.

    Bytes are a picture, and one without any is broken.
    """
    if isinstance(value, Mapping):
        return all(map(_is_empty_picture, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_empty_picture, value))
    if isinstance(value, str):
        return not value.strip() or says_nothing(value)
    return value is None


def _images(listed: Any) -> list[Content]:
    if isinstance(listed, str) and listed.startswith(('["', "[{")):  # a list in a cell of CSV
        with contextlib.suppress(ValueError, RecursionError):
            listed = json.loads(listed)
    return [image_of(item) for item in (listed if isinstance(listed, list) else [listed])]


def _unread_keys(column: str, value: Any, ignore: Collection[str]) -> Iterator[str]:
    """Yield the keys of listed images that are not read.

    Raises:
        BadRowError: one holds content, or gives the image another index than its place.
    """
    for place, item in enumerate(value if isinstance(value, list) else [value]):
        for key, other in item.items() if isinstance(item, Mapping) else ():
            if key in ignore or key in IMAGE_KEYS or says_nothing(other):
                continue
            unread = unread_problem(key, other, has_picture=True)
            problem = None if unread is None else unread.text
            if normal(key) in INDEX_KEYS and other != place:
                problem = f"`{key}` of image {place} is {shorten(other)}: list them in order"
            if problem is not None:
                message = f"in `{column}`: {problem}"
                raise BadRowError(message)
            if not is_metadata(key):
                yield f"{column}[].{key}"


def _are_web(column: str, images: Sequence[Content]) -> bool:
    """Check for web addresses in a column that may give the origin of another column's images."""
    if normal(column) not in ("image_url", "image_urls"):
        return False
    return all(image.data is None and image.value.startswith(WEB) for image in images)


def _check_agreement(
    by_column: Mapping[str, Sequence[Content]], file_columns: Collection[str]
) -> None:
    """Raise unless all columns list the same images."""
    if not by_column:
        return
    first_column, first = next(iter(by_column.items()))
    for column, images in by_column.items():
        by_name = column in file_columns or first_column in file_columns
        if not _are_same(first, images, by_name=by_name):
            names = [shorten([image.value for image in listed]) for listed in (first, images)]
            message = f"`{first_column}` lists {names[0]}, `{column}` {names[1]}"
            raise BadRowError(message)


def _are_same(first: Sequence[Content], others: Sequence[Content], *, by_name: bool) -> bool:
    """Check whether two columns list the same images; bytes may be those of a named file."""
    if len(first) != len(others):
        return False
    for image, other in zip(first, others, strict=True):
        is_comparable = by_name or (image.data is None) != (other.data is None)
        if image != other and not (is_comparable and _may_have_one_name(image, other)):
            return False
    return True


def _may_have_one_name(image: Content, other: Content) -> bool:
    """Compare the names of two images' files; bytes without a name match any."""
    names = [item.value.replace("\\", "/").rsplit("/", 1)[-1] for item in (image, other)]
    return names[0] == names[1] or not all(names)
