"""Resizing of pixels to the size that the model needs, from as few pixels as possible.

`exact` uses Pillow, as the image processors of transformers do. The faster way is torch, whose
antialiasing filters are Pillow's (bilinear, bicubic, Lanczos) in vector instructions;
torchvision, and so transformers' other image processors, use it. Its weights have 16 bits, so
some values differ by one step of 255. At black and white edges they differ by up to about 25
where Pillow 13 takes the vertical pass first (python-pillow/Pillow#9549): where an image loses
height and keeps or gains width, and where it loses clearly more height than width. torch begins
with the rows. It gives the same pixels with AVX2, AVX-512 and neither. Both release the
interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from slurm_jobs.formats.configs.stages import ImageDecoding

_TORCH_MODES = {
    Image.Resampling.LANCZOS: "lanczos",
    Image.Resampling.BILINEAR: "bilinear",
    Image.Resampling.BICUBIC: "bicubic",
}
"""Pillow's filters that torch has, too."""
_LEAST_RATIO: Mapping[ImageDecoding, Mapping[int, float]] = {
    "exact": {},
    "fine": {8: 3.0, 4: 3.0, 2: 3.0},
    "fast": {8: 1.0, 4: 1.0, 2: 0.8},
}
"""Minimum ratio of the decoded size at 1/8, 1/4 or 1/2 to the target size. libjpeg-turbo has
vector instructions for these fractions.

Measured on photographs and on images of their spectrum (docs/guides/data/image-decoding.md): from
three times the size the result is at least 50 dB from exact. From 0.8 times it is 28 to 44 dB,
where from one time it was 29 to 47: little more is lost than halving loses anyway, and a megapixel
for a model of 512 pixels decodes in 0.7 of the time. Lower ratios would need to invent many lines,
and the smaller fractions save too little time.
"""
_ROUNDING = 1e-3
"""Pixels: torch rounds the number of rows and columns down, so a product slightly below a whole
number must not lose one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resize:
    """Target size of an upright image, and its crop."""

    width: int
    height: int
    resample: int
    """Pillow's number of the filter (3 is bicubic)."""
    crop: tuple[int, int, int, int] | None = None
    """Left, upper, right and lower edge within `width` and `height`; None keeps all."""


Target = Callable[[int, int], Resize]
"""Maps width and height of the upright image to its resize."""


def jpeg_denominator(width: int, height: int, resize: Resize, decoding: ImageDecoding) -> int:
    """Return the factor, 1, 2, 4 or 8, by which a JPEG may be decoded smaller."""
    if resize.resample not in _TORCH_MODES:
        return 1
    ratio = min(width / resize.width, height / resize.height)
    allowed = _LEAST_RATIO[decoding].items()
    return next((number for number, least in allowed if ratio >= number * least), 1)


def resize_image(image: Image.Image, resize: Resize) -> np.ndarray:
    """Resize an image of mode RGB by Pillow to uint8 [height, width, 3]; `crop` is applied."""
    resized = image.resize((resize.width, resize.height), Image.Resampling(resize.resample))
    return np.asarray(resized if resize.crop is None else resized.crop(resize.crop))


def resize_pixels(
    pixels: np.ndarray,
    resize: Resize,
    decoding: ImageDecoding,
    *,
    extent: tuple[float, float] | None = None,
) -> np.ndarray:
    """Resize uint8 [height, width, 3]; `crop` is applied.

    `extent` is the width and height in pixels of the image if it is less than the array: a JPEG
    of 641 columns, decoded at half its size, has 321 columns, and the last is half a pixel.

    Raises:
        MemoryError: torch reported a lack of memory, as a RuntimeError.
    """
    mode = _TORCH_MODES.get(Image.Resampling(resize.resample))
    if decoding == "exact" or mode is None:
        return resize_image(Image.fromarray(pixels), resize)
    height, width = pixels.shape[:2]
    owned = np.require(pixels, np.uint8, ["C", "W"])  # torch warns about read-only arrays
    size: dict[str, Any] = {"size": (resize.height, resize.width)}
    # by factors, because `extent` is not the array's size
    if extent not in (None, (width, height)):
        factors = ((resize.height + _ROUNDING) / extent[1], (resize.width + _ROUNDING) / extent[0])
        size = {"scale_factor": factors, "recompute_scale_factor": False}
    values = torch.from_numpy(owned)[None].permute(0, 3, 1, 2)  # channels last, as in memory
    try:
        resized = torch.nn.functional.interpolate(values, mode=mode, antialias=True, **size)
    except RuntimeError as error:
        if "allocate memory" in str(error):
            raise MemoryError(str(error)) from error
        raise
    whole = resized[0, :, : resize.height, : resize.width].permute(1, 2, 0).contiguous().numpy()
    return cut_out(whole, resize.crop)


def cut_out(pixels: np.ndarray, crop: tuple[int, int, int, int] | None) -> np.ndarray:
    """Crop [height, width, 3] to left, upper, right and lower edge; None keeps all."""
    if crop is None:
        return pixels
    left, upper, right, lower = crop
    return np.ascontiguousarray(pixels[upper:lower, left:right])
