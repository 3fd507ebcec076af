"""Image bytes to upright RGB, by Pillow for the formats of image_formats.py and by libjpeg-turbo.

EXIF orientation is applied, transparency is composed over white, 16-bit grey is scaled to 8
bits, CMYK and other colour models are converted without their ICC profile, and an animation
gives its first frame. Unsupported images are rejected with a reason. Only Pillow decides this,
so the same images are rejected by either decoder.
"""

from __future__ import annotations

import io
import re
import struct
import warnings

import numpy as np
import simplejpeg
from PIL import Image, UnidentifiedImageError

from pipeline.preprocess.images.image_formats import (
    CONVERT_REMEDY,
    FORMATS,
    check_icon,
    check_scans,
    describe_foreign,
)
from pipeline.preprocess.images.metadata_removal import HostileImageError, without_metadata
from pipeline.preprocess.images.orientation import SIDEWAYS, UPRIGHT, orientation_of
from pipeline.preprocess.rejects import Reason, SampleRejectedError
from slurm_jobs.formats.file_signatures import PNG_SIGNATURE, TIFF_STARTS

_DIRECT_MODES = frozenset({"RGB", "L", "1", "P", "CMYK", "YCbCr", "HSV"})
_ALPHA_MODES = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})
_STRIP_PIXELS = 1 << 20

_LEAST_PIXEL_LIMIT = 1 << 24
"""Pillow's limit also applies to crops in this process, and it is global: below this many
pixels only `open_image` compares."""


def limit_inner_pixels(max_pixels: int) -> None:
    """Make Pillow refuse images inside files that have more pixels than allowed.

    `open_image` compares the size in a file's header with `max_pixels`, but an icon, an
    animation or a tile has its own size. Pillow raises an error at twice its limit, and warns
    at the limit. Its warnings, including those about broken metadata, are suppressed: an image
    is accepted or rejected.
    """
    Image.MAX_IMAGE_PIXELS = max(max_pixels, _LEAST_PIXEL_LIMIT) // 2
    warnings.filterwarnings("ignore", module=r"PIL\.")


def open_image(data: bytes, *, max_pixels: int, name: str) -> Image.Image:
    """Read the image's header; nothing is decoded yet, except an icon.

    Raises:
        SampleRejectedError: not an image, a broken header, or too many pixels.
    """
    check_icon(data, name)
    check_scans(data, name)
    is_read_while_decoding = data.startswith((PNG_SIGNATURE, *TIFF_STARTS))
    try:
        plain = without_metadata(data) if is_read_while_decoding else data
        image = Image.open(io.BytesIO(plain), formats=FORMATS)
    except MemoryError:
        raise
    except HostileImageError as error:
        raise broken(error, name) from error
    except Exception as error:  # noqa: BLE001 - Pillow's plugins raise any for broken bytes
        try:
            image = Image.open(io.BytesIO(without_metadata(data)), formats=FORMATS)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - the first error says what is wrong
            raise _unopened(error, data, name=name, max_pixels=max_pixels) from error
    if image.width * image.height > max_pixels:
        message = f"{name}: {image.width} x {image.height} pixels, max_pixels is {max_pixels}"
        raise SampleRejectedError(reason="too_many_pixels", message=message)
    return image


def _accepts(kind: str, prefix: bytes) -> bool:
    accept = Image.OPEN[kind][1]
    try:
        return accept is not None and accept(prefix) is True
    except (struct.error, IndexError):  # less than a signature
        return False


def _unopened(error: Exception, data: bytes, *, name: str, max_pixels: int) -> SampleRejectedError:
    """Return the rejection of a file that Pillow did not open."""
    if isinstance(error, Image.DecompressionBombError):
        count = next(iter(re.findall(r"\d+", str(error))), "too many")
        message = f"{name}: {count} pixels, max_pixels is {max_pixels}"
        return SampleRejectedError(reason="too_many_pixels", message=message)
    if not isinstance(error, UnidentifiedImageError):
        return broken(error, name)
    Image.init()
    known = next((kind for kind in (*FORMATS, *Image.OPEN) if _accepts(kind, data[:16])), None)
    if known in FORMATS:
        message = f"{name}: a {known} file whose header is broken or truncated"
        return SampleRejectedError(reason="corrupt_image", message=message)
    begins = f"not a supported image format (it begins with {data[:12]!r})"
    foreign = f"{f'a file of the format {known}' if known else begins}{CONVERT_REMEDY}"
    message = f"{name}: {describe_foreign(data) or foreign}"
    return SampleRejectedError(reason="not_an_image", message=message)


def broken(error: Exception, name: str) -> SampleRejectedError:
    """Return the rejection of an image that a decoder failed on, with the error's type."""
    if isinstance(error, Image.DecompressionBombError):
        return SampleRejectedError(reason="too_many_pixels", message=f"{name}: {error}")
    reason: Reason = "truncated_image" if "truncated" in str(error).lower() else "corrupt_image"
    is_plain = isinstance(error, (OSError, HostileImageError))
    kind = "" if is_plain else f"{type(error).__name__}: "
    return SampleRejectedError(reason=reason, message=f"{name}: {kind}{error}")


def decode_upright(image: Image.Image, name: str) -> Image.Image:
    """Decode an opened image to mode RGB, upright, by Pillow.

    Raises:
        SampleRejectedError: broken, or of an unknown range.
    """
    try:
        image.load()
        method = UPRIGHT.get(orientation_of(image))
        # ImageOps.exif_transpose gives the same pixels, but also rewrites the EXIF block, and
        # fails if any other tag of it cannot be written.
        upright = image if method is None else image.transpose(method)
    except MemoryError:  # not the image's fault: the task fails, and no sample is lost
        raise
    except Exception as error:  # Pillow's plugins raise any exception for broken bytes
        raise broken(error, name) from error
    return _to_rgb(upright, name)


def read_upright_size(data: bytes, *, max_pixels: int, name: str) -> tuple[int, int]:
    """Return (width, height) of the upright image from the file's header; decodes nothing.

    Raises:
        SampleRejectedError: not an image, broken, or too large.
    """
    image = open_image(data, max_pixels=max_pixels, name=name)
    if image.format == "TIFF":  # Pillow turns these itself, and reports the final size
        return image.size
    width, height = image.size
    return (height, width) if orientation_of(image) in SIDEWAYS else (width, height)


def decode_jpeg(data: bytes, *, width: int, height: int, denominator: int) -> np.ndarray | None:
    """Decode a JPEG of `width` x `height` at 1, 1/2, 1/4 or 1/8 of its size, rounded up.

    The pixels equal Pillow's (with `draft` at a fraction), as uint8 [h, w, 3], not turned. None
    if libjpeg-turbo reports any problem: Pillow then decides.
    """
    at_least = (-(-width // denominator), -(-height // denominator))
    try:
        pixels: np.ndarray = simplejpeg.decode_jpeg(
            data, "RGB", min_width=at_least[0], min_height=at_least[1]
        )
    except ValueError:
        return None
    return pixels if pixels.shape == (at_least[1], at_least[0], 3) else None


def _to_rgb(image: Image.Image, name: str) -> Image.Image:
    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.uint32)  # convert("L") would clip at 255 instead
        transparent = image.info.get("transparency")  # the transparent grey of a PNG becomes white
        if isinstance(transparent, int):
            values = np.where(values == transparent, 65535, values)
        return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if image.mode not in _ALPHA_MODES and "transparency" not in image.info:
        if image.mode not in _DIRECT_MODES:
            message = f"{name}: pixels of mode {image.mode}; convert it to 8-bit RGB"
            raise SampleRejectedError(reason="unsupported_mode", message=message)
        return image.convert("RGB")
    straight = {"La": "LA", "RGBa": "RGBA"}.get(image.mode, image.mode)
    flat = Image.new("RGB", image.size)
    rows = max(1, _STRIP_PIXELS // max(1, image.width))
    for top in range(0, image.height, rows):  # in strips: each step is a copy
        box = (0, top, image.width, min(image.height, top + rows))
        with_alpha = image.crop(box).convert(straight).convert("RGBA")
        white = Image.new("RGBA", with_alpha.size, (255, 255, 255, 255))
        flat.paste(Image.alpha_composite(white, with_alpha).convert("RGB"), (0, top))
    return flat
