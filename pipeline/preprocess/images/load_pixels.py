"""Image bytes to uint8 RGB in the size that the model needs.

`load_pixels` is the only path from bytes to pixels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image

from pipeline.preprocess.images.decode import decode_jpeg, decode_upright, open_image
from pipeline.preprocess.images.orientation import SIDEWAYS, orientation_of, turn_upright
from pipeline.preprocess.images.resize import (
    Target,
    cut_out,
    jpeg_denominator,
    resize_image,
    resize_pixels,
)
from slurm_jobs.formats.configs.stages import ImageDecoding

_JPEG_FORMATS = frozenset({"JPEG", "MPO"})
"""MPO: a JPEG followed by further images, as phones write them."""


def load_pixels(
    data: bytes,
    *,
    target: Target,
    decoding: ImageDecoding,
    max_pixels: int,
    name: str,
) -> np.ndarray:
    """Decode, turn upright and resize to the `target` for the upright image.

    It returns uint8 [height, width, 3]. The same bytes give the same pixels, whatever the thread
    or processor.

    Raises:
        SampleRejectedError: not an image, broken, of an unknown value range, or of too many
            pixels; or the error of `target`.
        MemoryError: not the image's fault.
    """
    image = open_image(data, max_pixels=max_pixels, name=name)
    if decoding != "exact" and image.format in _JPEG_FORMATS and image.mode == "RGB":
        pixels = _load_jpeg(data, image, target, decoding)
        if pixels is not None:
            return pixels
    upright = decode_upright(image, name)
    resize = target(*upright.size)
    if decoding == "exact":
        return resize_image(upright, resize)
    return resize_pixels(np.array(upright), resize, decoding)


def _load_jpeg(
    data: bytes, image: Image.Image, target: Target, decoding: ImageDecoding
) -> np.ndarray | None:
    """Decode a colour JPEG by libjpeg-turbo, as small as allowed; None where Pillow must decide.

    It is resized as stored and then turned, because fewer pixels are turned.
    """
    width, height = image.size
    orientation = orientation_of(image)
    is_sideways = orientation in SIDEWAYS
    resize = target(height, width) if is_sideways else target(width, height)
    stored = replace(resize, crop=None)
    if is_sideways:
        stored = replace(stored, width=resize.height, height=resize.width)
    denominator = jpeg_denominator(width, height, stored, decoding)
    decoded = decode_jpeg(data, width=width, height=height, denominator=denominator)
    if decoded is None:
        return None
    extent = (width / denominator, height / denominator)
    turned = turn_upright(resize_pixels(decoded, stored, decoding, extent=extent), orientation)
    return cut_out(turned, resize.crop)
