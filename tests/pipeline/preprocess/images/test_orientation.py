"""EXIF orientation: pixels are turned as Pillow turns them."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from pipeline.preprocess.images.orientation import SIDEWAYS, orientation_of, turn_upright

PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
"""[height, width, 3], each value once."""


@pytest.mark.parametrize("orientation", range(10))
def test_pixels_are_turned_as_pillow_turns_them(orientation: int) -> None:
    image = Image.fromarray(PIXELS)
    image.getexif()[0x0112] = orientation
    known = orientation_of(image)
    assert known == (orientation if 1 <= orientation <= 8 else 1)
    turned = turn_upright(PIXELS, known)
    assert np.array_equal(turned, np.asarray(ImageOps.exif_transpose(image)))
    assert turned.shape == ((3, 2, 3) if known in SIDEWAYS else (2, 3, 3))
