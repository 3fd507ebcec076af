"""EXIF orientation: which way an image is stored, and how it is turned upright."""

from __future__ import annotations

import numpy as np
from PIL import ExifTags, Image

UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transposition that makes an image upright, by EXIF orientation if it is not 1 (CIPA DC-008,
4.6.4.A)."""

SIDEWAYS = frozenset({5, 6, 7, 8})
"""Orientations that swap width and height."""


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation of the stored image; 1, upright, if it is unreadable."""
    try:
        # `image.getexif` would decode a PNG; its orientation is stored before the pixels
        orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - raised by broken EXIF; the pixels may be whole
        return 1
    return orientation if orientation in UPRIGHT else 1


def turn_upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Turn pixels [height, width, 3] by EXIF orientation; a copy if they are turned."""
    method = UPRIGHT.get(orientation)
    if method is None:
        return pixels
    return np.asarray(Image.fromarray(pixels).transpose(method))
