"""Stored images for a page: unchanged from the shard, or smaller if necessary."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from pipeline.data.disk_format.sample_members import decode_stored_image

_MAX_SIDE = 768
_SIDES = (_MAX_SIDE, 512, 384, 256, 192, 128, 96, 64)
_QUALITY = 85
_MIME = {".png": "image/png", ".jpg": "image/jpeg"}


def data_uri(data: memoryview, suffix: str, *, max_bytes: int) -> str:
    """Return a data URI of at most about `max_bytes`, which a browser shows offline.

    The bytes of the shard, or raw pixels as PNG, if they fit; else a JPEG, as large as
    possible.

    Raises:
        ValueError, OSError: it is not an image.
    """
    pixels = Image.fromarray(np.asarray(decode_stored_image(data, suffix)))
    if max(pixels.size) <= _MAX_SIDE:
        kind = next((mime for end, mime in _MIME.items() if suffix.endswith(end)), None)
        whole = bytes(data) if kind is not None else _encoded(pixels, "PNG")
        if len(whole) <= max_bytes:
            return _uri(kind or "image/png", whole)
    for side in _SIDES:
        small = pixels.copy()
        small.thumbnail((side, side))
        encoded = _encoded(small, "JPEG", quality=_QUALITY)
        if len(encoded) <= max_bytes:
            break
    return _uri("image/jpeg", encoded)


def _encoded(pixels: Image.Image, kind: str, **options: int) -> bytes:
    stream = io.BytesIO()
    pixels.save(stream, kind, **options)
    return stream.getvalue()


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
