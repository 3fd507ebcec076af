"""Image bytes to upright RGB, by Pillow for whatever it opens and by libjpeg-turbo for JPEGs.

EXIF orientation is applied, transparency is laid over white, 16-bit grey is scaled to 8 bits, CMYK
and other colour models are converted without their ICC profile, and an animation gives its first
frame. What cannot be taken is rejected with a reason: Pillow alone judges, so that the same
pictures are rejected whichever way they are decoded.
"""

from __future__ import annotations

import io

import numpy as np
import simplejpeg
from PIL import ExifTags, Image, UnidentifiedImageError

from pipeline.preprocess.rejects import Reason, SampleRejectedError

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""By EXIF's orientation, where it is not 1 (CIPA DC-008, 4.6.4.A): what makes a picture upright."""

SIDEWAYS = frozenset({5, 6, 7, 8})
"""Orientations of which the upright picture is as wide as the stored one is high."""

_PNG_ORIENTATION = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")
"""Chunks of a PNG that may turn it. Pillow decodes all of it to look for them behind the pixels."""

_DIRECT_MODES = frozenset({"RGB", "L", "1", "P", "CMYK", "YCbCr", "HSV"})
_ALPHA_MODES = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})
_JPEG_FORMATS = frozenset({"JPEG", "MPO"})
"""MPO: a JPEG with further pictures behind it, as telephones write them."""


def leave_pixel_limit_to_us() -> None:
    """Switch off Pillow's own limit, which is one for the whole process and half a warning.

    `open_image` compares the size in the header with `max_pixels` before anything is decoded.
    """
    Image.MAX_IMAGE_PIXELS = None


def open_image(data: bytes, *, max_pixels: int, name: str) -> Image.Image:
    """The picture's header; nothing is decoded yet.

    Raises:
        SampleRejectedError: not an image, a broken header, or too many pixels.
    """
    try:
        image = Image.open(io.BytesIO(data))
    except UnidentifiedImageError as error:
        message = f"{name}: no image format that Pillow {Image.__version__} knows"
        raise SampleRejectedError(reason="not_an_image", message=message) from error
    except MemoryError:
        raise
    except Exception as error:  # Pillow's plugins raise anything on broken bytes
        raise broken(error, name) from error
    if image.width * image.height > max_pixels:
        message = f"{name}: {image.width} x {image.height} pixels, max_pixels is {max_pixels}"
        raise SampleRejectedError(reason="too_many_pixels", message=message)
    return image


def broken(error: Exception, name: str) -> SampleRejectedError:
    """The rejection of a picture at which a decoder failed."""
    reason: Reason = "truncated_image" if "truncated" in str(error).lower() else "corrupt_image"
    return SampleRejectedError(reason=reason, message=f"{name}: {error}")


def decode_upright(image: Image.Image, name: str) -> Image.Image:
    """Decode an opened image to mode RGB, upright, by Pillow.

    Raises:
        SampleRejectedError: broken, or of an unknown range.
    """
    try:
        image.load()
        method = _UPRIGHT.get(orientation_of(image))
        # ImageOps.exif_transpose makes the same pixels, but writes the EXIF block anew as well,
        # and fails where any other tag of it cannot be written.
        upright = image if method is None else image.transpose(method)
    except MemoryError:  # says nothing of the picture: the task fails, and no sample is lost
        raise
    except Exception as error:  # Pillow's plugins raise anything on broken bytes
        raise broken(error, name) from error
    return to_rgb(upright, name)


def read_upright_size(data: bytes, *, max_pixels: int, name: str) -> tuple[int, int]:
    """The (width, height) of the upright picture, by what the file states; decodes nothing.

    Raises:
        SampleRejectedError: not an image, broken, or too large.
    """
    image = open_image(data, max_pixels=max_pixels, name=name)
    if image.format == "TIFF":  # which Pillow turns itself, and says so at once
        return image.size
    if image.format == "PNG" and not any(chunk in data for chunk in _PNG_ORIENTATION):
        return image.size
    try:
        orientation = orientation_of(image)
    except MemoryError:
        raise
    except Exception as error:  # Pillow's plugins raise anything on broken bytes
        raise broken(error, name) from error
    width, height = image.size
    return (height, width) if orientation in SIDEWAYS else (width, height)


def orientation_of(image: Image.Image) -> int:
    """EXIF's number of how the stored picture stands; 1 is upright."""
    return image.getexif().get(ExifTags.Base.Orientation, 1)


def turn_upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Pixels [height, width, 3] as EXIF's orientation means them; a copy where they are turned."""
    method = _UPRIGHT.get(orientation)
    if method is None:
        return pixels
    return np.asarray(Image.fromarray(pixels).transpose(method))


def is_plain_jpeg(image: Image.Image) -> bool:
    """Whether `decode_jpeg` may be tried: a JPEG in colour, of three channels."""
    return image.format in _JPEG_FORMATS and image.mode == "RGB"


def decode_jpeg(data: bytes, *, width: int, height: int, denominator: int) -> np.ndarray | None:
    """Decode a JPEG of `width` x `height` at 1, 1/2, 1/4 or 1/8 of its size, rounded up.

    The pixels are those that Pillow gives (with `draft` at a fraction), as uint8 [h, w, 3], not
    turned. None if libjpeg-turbo finds anything amiss: Pillow is to say what.
    """
    at_least = (-(-width // denominator), -(-height // denominator))
    try:
        pixels: np.ndarray = simplejpeg.decode_jpeg(
            data, "RGB", min_width=at_least[0], min_height=at_least[1]
        )
    except ValueError:
        return None
    return pixels if pixels.shape == (at_least[1], at_least[0], 3) else None


def to_rgb(image: Image.Image, name: str = "image") -> Image.Image:
    """A decoded image in mode RGB.

    Raises:
        SampleRejectedError: the mode's range of values is not known.
    """
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        return _over_white(image)
    if image.mode.startswith("I;16"):
        return _scale_16_bit(image)
    if image.mode not in _DIRECT_MODES:
        message = f"{name}: pixels of mode {image.mode}; convert it to 8-bit RGB"
        raise SampleRejectedError(reason="unsupported_mode", message=message)
    return image.convert("RGB")


def _over_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):  # a 16-bit PNG whose transparent grey is named by a chunk
        return _scale_16_bit(image)
    straight = {"La": "LA", "RGBa": "RGBA"}.get(image.mode, image.mode)
    with_alpha = image.convert(straight).convert("RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, with_alpha).convert("RGB")


def _scale_16_bit(image: Image.Image) -> Image.Image:
    values = np.asarray(image).astype(np.uint32)  # convert("L") would clip at 255 instead
    transparent = image.info.get("transparency")  # the grey of a PNG that is: white
    if isinstance(transparent, int):
        values = np.where(values == transparent, 65535, values)
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
