"""Stored images as they go into a page: as they lie in the shard, or smaller where it must be."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from pipeline.data.sample_format import decode_stored_image

_MAX_SIDE = 768
_SIDES = (_MAX_SIDE, 512, 384, 256, 192, 128, 96, 64)
_QUALITY = 85
_MIME = {".png": "image/png", ".jpg": "image/jpeg"}


def data_uri(data: memoryview, suffix: str, *, max_bytes: int) -> str:
    """A picture that a browser shows without asking anybody, of at most about `max_bytes`.

    The bytes of the shard, if they are a PNG or JPEG that fits; else a JPEG, as large as it may.

    Raises:
        ValueError, OSError: it is no image.
    """
    pixels = Image.fromarray(np.asarray(decode_stored_image(data, suffix)))
    kind = next((mime for end, mime in _MIME.items() if suffix.endswith(end)), None)
    if kind is not None and len(data) <= max_bytes and max(pixels.size) <= _MAX_SIDE:
        return _uri(kind, bytes(data))
    for side in _SIDES:
        small = pixels.copy()
        small.thumbnail((side, side))
        stream = io.BytesIO()
        small.save(stream, "JPEG", quality=_QUALITY)
        if stream.tell() <= max_bytes:
            break
    return _uri("image/jpeg", stream.getvalue())


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
