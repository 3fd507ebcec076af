"""Sizes of images from the headers of their files, without decoding pixels."""

from __future__ import annotations

import importlib.util
import io
import warnings
from pathlib import Path
from typing import IO

from slurm_jobs.common.image_places import place_of
from slurm_jobs.common.manifests.rows import Content

MAX_HEADERS = 1_000
"""Files that are opened for it: about a second on a shared file system."""
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000")
"""Formats whose header has the size; other files are skipped, and the job checks them."""


def can_read_sizes() -> bool:
    """Check whether this Python has Pillow, which the install without `train` does not bring."""
    return importlib.util.find_spec("PIL") is not None


def size_of(image: Content, root: str) -> tuple[int, int] | None:
    """Return width and height of an image of a manifest row; None where they cannot be read.

    Args:
        image: Path or bytes; members of archives are not read.
        root: Absolute folder that relative paths start from.
    """
    if image.problem or not can_read_sizes():
        return None
    if image.data is not None:
        return read_size(io.BytesIO(image.data))
    file, member = place_of(image.value, root)
    try:
        is_file = member is None and Path(file).is_file()
    except (OSError, ValueError):
        return None
    return read_size(Path(file)) if is_file else None


def read_size(file: Path | IO[bytes]) -> tuple[int, int] | None:
    """Return width and height as the header states them; None where it cannot be read."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(file, formats=_FORMATS) as image:
                width, height = image.size
    except Exception:  # noqa: BLE001 - Pillow raises anything on a broken file; the job names it
        return None
    return (width, height) if width > 0 and height > 0 else None
