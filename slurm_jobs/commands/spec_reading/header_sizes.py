"""Sizes of images from the headers of their files, without decoding pixels."""

from __future__ import annotations

import importlib.util
import io
import warnings
from contextlib import suppress
from pathlib import Path
from typing import IO

from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.formats.file_signatures import HEAD_BYTES
from slurm_jobs.formats.manifests.image_paths import place_of
from slurm_jobs.formats.manifests.messages import Content

MAX_HEADERS = 1_000
"""Files that are opened for it: about a second on a shared file system."""
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000")
"""Formats whose header has the size; other files are skipped, and the job checks them."""


def can_read_sizes() -> bool:
    """Check whether this Python has Pillow, which the install without `train` does not bring."""
    return importlib.util.find_spec("PIL") is not None


def size_of(image: Content, root: str) -> tuple[int, int] | None:
    """Return width and height of an image of a manifest row; None where they cannot be read.

    Members of archives are not read. Relative paths start from `root`, an absolute folder.
    """
    source = _source_of(image, root) if can_read_sizes() else None
    return None if source is None else read_size(source)


def head_of(image: Content, root: str) -> bytes | None:
    """Return the first bytes of an image as `size_of` finds it; None where it is not read."""
    source = _source_of(image, root)
    if not isinstance(source, Path):
        return None if source is None else source.read(HEAD_BYTES)
    with suppress(OSError), open_regular(source) as stream:
        return stream.read(HEAD_BYTES)
    return None


def _source_of(image: Content, root: str) -> Path | IO[bytes] | None:
    if image.problem:
        return None
    if image.data is not None:
        return io.BytesIO(image.data)
    file, member = place_of(image.value, root)
    try:
        return Path(file) if member is None and Path(file).is_file() else None
    except (OSError, ValueError):
        return None


def read_size(file: Path | IO[bytes]) -> tuple[int, int] | None:
    """Return width and height as the header states them; None where it cannot be read."""
    if isinstance(file, Path):
        with suppress(OSError, ValueError), open_regular(file) as stream:
            return _size_in_header(stream)
        return None
    return _size_in_header(file)


def _size_in_header(stream: IO[bytes]) -> tuple[int, int] | None:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(stream, formats=_FORMATS) as image:
                width, height = image.size
    except Exception:  # noqa: BLE001 - Pillow raises anything on a broken file; the job names it
        return None
    return (width, height) if width > 0 and height > 0 else None
