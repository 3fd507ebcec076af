"""Pixels to the bytes stored in a shard, and the cost of each format.

A format is a trade between space, the time to write once and the time to read in every epoch.
docs/guides/data/image-decoding.md compares them all, and a slice measures its own format on its
first images.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from pipeline.data.disk_format.sample_members import decode_stored_image
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.formats.configs.stages import ImageFormat

MEMBER_SUFFIX: dict[ImageFormat, str] = {
    "png": "png",
    "jpeg": "jpg",
    "webp": "webp",
    "webp_lossless": "webp",
    "raw": "npy",
}
"""File name suffix of an image's member in a shard."""
LOSSY_FORMATS: frozenset[ImageFormat] = frozenset({"jpeg", "webp"})
"""Formats with an `image_quality`."""
_MOST_PIXELS_A_SIDE: dict[ImageFormat, int] = {
    "jpeg": 65_500,  # libjpeg's JPEG_MAX_DIMENSION
    "webp": 16_383,  # 14 bits in the header of VP8 (RFC 6386, 9.1)
    "webp_lossless": 16_383,  # 14 bits too (RFC 9649, 3.4)
}
_Z_RLE = 3
"""zlib's strategy for filtered image rows: matches are runs only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPrice:
    """Cost of one stored image, measured by reading it back."""

    num_bytes: int
    decode_s: float
    """CPU seconds of the thread."""
    squared_error: float
    """Mean over all values, in squared steps of 255; 0 if every pixel is kept."""


def image_to_bytes(
    pixels: np.ndarray, image_format: ImageFormat, quality: int, name: str = "image"
) -> bytes:
    """Encode uint8 [height, width, 3]; equal pixels give equal bytes.

    Raises:
        SampleRejectedError: a side is longer than the format allows.
    """
    most = _MOST_PIXELS_A_SIDE.get(image_format)
    if most is not None and max(pixels.shape[:2]) > most:
        message = (
            f"{name}: {pixels.shape[1]} x {pixels.shape[0]} pixels after resizing, but "
            f"image_format: {image_format} allows {most} per side; png and raw allow more"
        )
        raise SampleRejectedError(reason="too_many_pixels", message=message)
    stream = io.BytesIO()
    if image_format == "raw":
        np.lib.format.write_array(stream, np.ascontiguousarray(pixels), version=(1, 0))
        return stream.getvalue()
    image = Image.fromarray(pixels)
    if image_format == "jpeg":
        # 4:4:4: text and thin lines in screenshots lose most to colour subsampling
        image.save(stream, "JPEG", quality=quality, subsampling=0)
    elif image_format == "webp":
        # Method 2 gives a size within 1 % of the default, 4, in half the time.
        image.save(stream, "WEBP", quality=quality, method=2)
    elif image_format == "webp_lossless":
        # The lowest effort takes a third of PNG's time and is smaller; the default effort saves 5
        # to 12 % more in forty times the time.
        image.save(stream, "WEBP", lossless=True, quality=0, method=0)
    else:
        # On photographs as small as with zlib's default strategy, in 8 ms instead of 23 (384 x
        # 384).
        image.save(stream, "PNG", compress_level=6, compress_type=_Z_RLE)
    return stream.getvalue()


def price_of(pixels: np.ndarray, stored: bytes, image_format: ImageFormat) -> StoredPrice:
    """Read a stored image back as training does, and compare it with its pixels."""
    start_s = time.thread_time()
    image = decode_stored_image(memoryview(stored), f"image0.{MEMBER_SUFFIX[image_format]}")
    decode_s = time.thread_time() - start_s
    difference = image.astype(np.float32) - pixels
    return StoredPrice(
        num_bytes=len(stored), decode_s=decode_s, squared_error=float(np.mean(difference**2))
    )


def psnr_db(squared_error: float) -> float:
    """Return the peak signal-to-noise ratio of 8-bit values in decibels; infinite without error."""
    return 10 * math.log10(255**2 / squared_error) if squared_error else math.inf


def mean_price(prices: Sequence[StoredPrice]) -> dict[str, float | None]:
    """Return mean bytes, milliseconds to decode and PSNR of the measured images.

    The PSNR is that of the mean error; None if every pixel is kept (JSON has no infinity).
    """
    count = len(prices)
    error = sum(price.squared_error for price in prices) / count
    return {
        "num_measured": count,
        "bytes": round(sum(price.num_bytes for price in prices) / count),
        "decode_ms": round(1e3 * sum(price.decode_s for price in prices) / count, 3),
        "psnr_db": round(psnr_db(error), 1) if error else None,
    }
