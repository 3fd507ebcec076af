"""Captions in COCO's format: `images`, and `annotations` that name one of them by `image_id`.

Each caption is a row, so a picture with five captions is five rows. A picture without a caption is
none. Source: cocodataset.org, "Data format", section 5 (image captioning).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = ("id", "image", "text")
"""Keys of a row: of the annotation, the picture's `file_name`, and the caption."""


def is_coco(values: Mapping[str, Any]) -> bool:
    """Check for lists of images and of annotations."""
    return all(isinstance(values.get(key), list) for key in ("images", "annotations"))


def coco_problem(values: Mapping[str, Any]) -> str | None:
    """Return why such a file cannot be read; None if it has captions of clear pictures."""
    names: dict[Any, Any] = {}
    for item in values["images"]:
        if isinstance(item, Mapping):
            number, name = item.get("id"), item.get("file_name")
            if names.setdefault(number, name) != name:
                return (
                    f": two of its images, {names[number]} and {name}, have the id {number}, as in "
                    "files that were joined; give each an id of its own"
                )
    annotations: Sequence[Any] = values["annotations"]
    if any(isinstance(item, Mapping) and "caption" in item for item in annotations):
        return None
    first = next((item for item in annotations if isinstance(item, Mapping)), {})
    keys = ", ".join(map(str, first)) or "none"
    return (
        f": its annotations in COCO's format have no `caption` (their keys are {keys}); name the "
        "file of captions, which COCO calls captions_*.json, or write a manifest"
    )


def coco_rows(values: Mapping[str, Any]) -> list[Any]:
    """Return a row for each caption; an annotation without its picture stays as it is."""
    names = {
        item.get("id"): item.get("file_name")
        for item in values["images"]
        if isinstance(item, Mapping)
    }
    rows: list[Any] = []
    for item in values["annotations"]:
        if not isinstance(item, Mapping):
            rows.append(item)
            continue
        image = names.get(item.get("image_id"))
        rows.append({"id": item.get("id"), "image": image or "", "text": item.get("caption")})
    return rows
