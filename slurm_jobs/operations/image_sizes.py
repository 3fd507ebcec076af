"""Sizes of images from the headers of their files; no pixel is decoded."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

MAX_HEADERS = 1_000
"""Files that are opened for it: about a second on a shared file system."""
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000")
"""Whose header states the size; other files are passed over, and the job judges them."""


def can_read_sizes() -> bool:
    """Check whether this Python has Pillow, which the install without `train` does not bring."""
    return importlib.util.find_spec("PIL") is not None


def read_size(file: Path) -> tuple[int, int] | None:
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


def spread(num_files: int, most: int = MAX_HEADERS) -> list[int]:
    """Return the places of at most so many files, evenly over all of them."""
    if num_files <= most:
        return list(range(num_files))
    return [number * num_files // most for number in range(most)]
