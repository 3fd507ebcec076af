"""Image files to uint8 RGB in the size that the model needs.

`load_pixels` is the only path from bytes to pixels. decode.py handles unusual images,
resample.py resizes, storage.py encodes the stored pixels. An error of the file system itself
(`EIO`, `ESTALE`, a refusal that the file's mode does not explain, a missing root folder) is not
a reject: it propagates. So another attempt can read the same image, and the data set does not
change.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.preprocess.decode import (
    SIDEWAYS,
    decode_jpeg,
    decode_upright,
    is_plain_jpeg,
    open_image,
    orientation_of,
    turn_upright,
)
from pipeline.preprocess.file_opening import open_at_once
from pipeline.preprocess.rejects import SampleRejectedError
from pipeline.preprocess.resample import (
    Target,
    cut_out,
    jpeg_denominator,
    resize_image,
    resize_pixels,
)
from slurm_jobs.common.stage_config.preprocess import ImageDecoding

_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""Errors of the name, not of the file system: another attempt would fail, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedImage:
    """Image in the size of its target."""

    pixels: np.ndarray
    """uint8 [height, width, 3], upright."""
    original_size: tuple[int, int]
    """(width, height) in the file, before it is turned."""


class _NoFileError(OSError):
    """The path is a pipe, socket or device: no end, or no writer."""


def read_image_bytes(file: Path, *, name: str, root: Path) -> bytes:
    """Return the content of an image file.

    Args:
        file: Path to open.
        name: Its name in the manifest, for messages.
        root: Folder that must exist before a file counts as missing.

    Raises:
        SampleRejectedError: the file is missing, empty, or its mode forbids this user to read
            it.
        OSError: the file system failed.
    """
    try:
        data = _read_file(file)
    except _NoFileError as error:
        message = f"{name}: not a file, but a pipe, a socket or a device"
        raise SampleRejectedError(reason="unreadable_image", message=message) from error
    except (PermissionError, IsADirectoryError) as error:
        if isinstance(error, PermissionError) and _may_read(file):
            raise
        message = f"{name}: {error.strerror}"
        raise SampleRejectedError(reason="unreadable_image", message=message) from error
    except OSError as error:
        if error.errno not in _NO_SUCH_FILE or not root.is_dir():
            raise
        why = "" if error.errno == errno.ENOENT else f" ({error.strerror})"
        message = f"{name}: no such file{why}"
        raise SampleRejectedError(reason="missing_image", message=message) from error
    except ValueError as error:  # not a possible file name
        message = f"{name!r}: no such file ({error})"
        raise SampleRejectedError(reason="missing_image", message=message) from error
    if not data:
        raise SampleRejectedError(reason="empty_image", message=f"{name}: zero bytes")
    return data


def _read_file(path: Path) -> bytes:
    """Read a whole file; does not wait on a pipe without a writer.

    Raises:
        _NoFileError: it is not a file, and not a folder.
        OSError, ValueError: as in `os.open`.
    """
    try:
        fd = open_at_once(path)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise _NoFileError from error
        raise
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise _NoFileError
        with open(fd, "rb", buffering=0, closefd=False) as stream:
            return stream.readall()
    finally:
        os.close(fd)


def _may_read(path: Path) -> bool:
    """Check whether the mode of a file lets this user read it, whatever the mount reports now.

    Raises:
        PermissionError: the mode cannot be read either.
    """
    facts = path.stat()
    if facts.st_uid == os.geteuid():
        return bool(facts.st_mode & stat.S_IRUSR)
    if facts.st_gid in (os.getegid(), *os.getgroups()):
        return bool(facts.st_mode & stat.S_IRGRP)
    return bool(facts.st_mode & stat.S_IROTH)


def load_pixels(
    data: bytes,
    *,
    target: Target,
    decoding: ImageDecoding,
    max_pixels: int,
    name: str,
) -> LoadedImage:
    """Decode, turn upright and resize to the `target` for the upright image.

    The same bytes give the same pixels, whatever the thread or processor.

    Raises:
        SampleRejectedError: not an image, broken, of an unknown value range, or of too many
            pixels; or the error of `target`.
        MemoryError: not the image's fault.
    """
    image = open_image(data, max_pixels=max_pixels, name=name)
    size = image.size
    pixels: np.ndarray | None = None
    if decoding != "exact" and is_plain_jpeg(image):
        pixels = _load_jpeg(data, image, target, decoding)
    if pixels is None:
        upright = decode_upright(image, name)
        resize = target(*upright.size)
        if decoding == "exact":
            pixels = resize_image(upright, resize)
        else:
            pixels = resize_pixels(np.array(upright), resize, decoding)
    return LoadedImage(pixels=pixels, original_size=size)


def _load_jpeg(
    data: bytes,
    image: Image.Image,
    target: Target,
    decoding: ImageDecoding,
) -> np.ndarray | None:
    """Decode a colour JPEG by libjpeg-turbo, as small as allowed; None where Pillow must decide.

    It is resized as stored and then turned, because fewer pixels are turned.
    """
    orientation = orientation_of(image)
    width, height = image.size
    sideways = orientation in SIDEWAYS
    upright = (height, width) if sideways else (width, height)
    resize = target(*upright)
    stored = replace(resize, crop=None)
    if sideways:
        stored = replace(stored, width=resize.height, height=resize.width)
    denominator = jpeg_denominator(width, height, stored, decoding)
    decoded = decode_jpeg(data, width=width, height=height, denominator=denominator)
    if decoded is None:
        return None
    extent = (width / denominator, height / denominator)
    turned = turn_upright(resize_pixels(decoded, stored, decoding, extent=extent), orientation)
    return cut_out(turned, resize.crop)
