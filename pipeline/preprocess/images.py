"""Image files to upright RGB pictures, and stored arrays to bytes.

Whatever Pillow opens is taken: EXIF orientation is applied, transparency is
laid over white, 16-bit grey is scaled to 8 bits, CMYK and other colour models
are converted without their ICC profile, and an animation gives its first
frame. What cannot be taken is rejected with a reason. An error of the file
system itself (`EIO`, `ESTALE`, a refusal that the file's mode does not explain,
a root folder that is gone) is no reject: it propagates, so that another attempt
may read the same image and the data set stays what it would have been.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from pipeline.preprocess.rejects import Reason, SampleRejectedError
from slurm_jobs.common.stage_config.preprocess import ImageFormat

MEMBER_SUFFIX: dict[ImageFormat, str] = {"png": "png", "jpeg": "jpg", "raw": "npy"}
"""Ending of an image's member in a shard."""

_Z_RLE = 3
"""zlib's strategy for filtered image rows: matches are runs only."""

_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""The name's fault, not the file system's: another attempt would meet it again."""

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

_LYING = frozenset({5, 6, 7, 8})
"""Orientations that exchange width and height."""

_PNG_ORIENTATION = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")
"""Chunks of a PNG that may turn it. Pillow decodes all of it to look for them behind the pixels."""

_DIRECT_MODES = frozenset({"RGB", "L", "1", "P", "CMYK", "YCbCr", "HSV"})
_ALPHA_MODES = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})


def leave_pixel_limit_to_us() -> None:
    """Switch off Pillow's own limit, which is one for the whole process and half a warning.

    `decode_image` compares the size in the header with `max_pixels` before it decodes.
    """
    Image.MAX_IMAGE_PIXELS = None


def read_image_bytes(root: Path, name: str) -> bytes:
    """The content of the image file `name` in `root`; messages name it as the manifest does.

    Raises:
        SampleRejectedError: the file is missing, empty, or its mode forbids this user to read it.
        OSError: the file system failed.
    """
    try:
        data = (root / name).read_bytes()
    except (PermissionError, IsADirectoryError) as error:
        if isinstance(error, PermissionError) and _may_read(root / name):
            raise
        message = f"{name}: {error.strerror}"
        raise SampleRejectedError(reason="unreadable_image", message=message) from error
    except OSError as error:
        if error.errno not in _NO_SUCH_FILE or not root.is_dir():
            raise
        message = f"{name}: no such file ({error.strerror})"
        raise SampleRejectedError(reason="missing_image", message=message) from error
    except ValueError as error:  # a name that no file can have
        message = f"{name!r}: no such file ({error})"
        raise SampleRejectedError(reason="missing_image", message=message) from error
    if not data:
        raise SampleRejectedError(reason="empty_image", message=f"{name}: zero bytes")
    return data


def _may_read(path: Path) -> bool:
    """Whether the mode of a file lets this user read it, whatever the mount says at the moment.

    Raises:
        PermissionError: even that may not be asked.
    """
    facts = path.stat()
    if facts.st_uid == os.geteuid():
        return bool(facts.st_mode & stat.S_IRUSR)
    if facts.st_gid in (os.getegid(), *os.getgroups()):
        return bool(facts.st_mode & stat.S_IRGRP)
    return bool(facts.st_mode & stat.S_IROTH)


def decode_image(data: bytes, *, max_pixels: int, name: str) -> tuple[Image.Image, tuple[int, int]]:
    """Decode to mode RGB, upright; also the (width, height) that the file states.

    Raises:
        SampleRejectedError: not an image, broken, too large, or of an unknown range.
    """
    image = _open(data, name)
    size = image.size
    _check_num_pixels(size, max_pixels, name)
    try:
        image.load()
        image = _turn_upright(image)
    except MemoryError:  # says nothing of the picture: the task fails, and no sample is lost
        raise
    except Exception as error:  # Pillow's plugins raise anything on broken bytes
        raise _broken(error, name) from error
    return to_rgb(image, name), size


def read_upright_size(data: bytes, *, max_pixels: int, name: str) -> tuple[int, int]:
    """The (width, height) of the upright picture, by what the file states; decodes nothing.

    Raises:
        SampleRejectedError: not an image, broken, or too large.
    """
    image = _open(data, name)
    _check_num_pixels(image.size, max_pixels, name)
    if image.format == "TIFF":  # which Pillow turns itself, and says so at once
        return image.size
    if image.format == "PNG" and not any(chunk in data for chunk in _PNG_ORIENTATION):
        return image.size
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except MemoryError:
        raise
    except Exception as error:  # Pillow's plugins raise anything on broken bytes
        raise _broken(error, name) from error
    width, height = image.size
    return (height, width) if orientation in _LYING else (width, height)


def _check_num_pixels(size: tuple[int, int], max_pixels: int, name: str) -> None:
    if size[0] * size[1] > max_pixels:
        message = f"{name}: {size[0]} x {size[1]} pixels, max_pixels is {max_pixels}"
        raise SampleRejectedError(reason="too_many_pixels", message=message)


def _turn_upright(image: Image.Image) -> Image.Image:
    """The pixels as the EXIF orientation means them.

    `ImageOps.exif_transpose` makes the same pixels, but writes the EXIF block anew as well, and
    fails where any other tag of it cannot be written.
    """
    method = _UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    return image if method is None else image.transpose(method)


def _open(data: bytes, name: str) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data))
    except UnidentifiedImageError as error:
        message = f"{name}: no image format that Pillow {Image.__version__} knows"
        raise SampleRejectedError(reason="not_an_image", message=message) from error
    except MemoryError:
        raise
    except Exception as error:  # Pillow's plugins raise anything on broken bytes
        raise _broken(error, name) from error


def _broken(error: Exception, name: str) -> SampleRejectedError:
    reason: Reason = "truncated_image" if "truncated" in str(error).lower() else "corrupt_image"
    return SampleRejectedError(reason=reason, message=f"{name}: {error}")


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
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")


def image_to_bytes(pixels: np.ndarray, image_format: ImageFormat, quality: int) -> bytes:
    """Encode uint8 [height, width, 3]; equal pixels give equal bytes."""
    stream = io.BytesIO()
    if image_format == "raw":
        np.lib.format.write_array(stream, np.ascontiguousarray(pixels), version=(1, 0))
    elif image_format == "jpeg":
        # 4:4:4: text and thin lines in screenshots lose most to colour subsampling
        Image.fromarray(pixels).save(stream, "JPEG", quality=quality, subsampling=0)
    else:
        # On photographs as small as zlib's default strategy, in 7 ms instead of 16 (384 x 384).
        Image.fromarray(pixels).save(stream, "PNG", compress_level=6, compress_type=_Z_RLE)
    return stream.getvalue()
