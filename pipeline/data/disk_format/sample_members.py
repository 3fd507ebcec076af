"""Members of a sample: their names, and how they are written and read without copying.

`KEY.tokens.npy` int32 [2, num_tokens] (row 0 input_ids, row 1 labels), `KEY.meta.json`, and
`KEY.image0.webp` (or `.png`, `.jpg`, or `.npy` for raw pixels), `KEY.image1...` in the order of
the image tokens.
"""

from __future__ import annotations

import ast
import functools
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from pipeline.data.disk_format.tar_format import BLOCK, Member, sample_bytes, scan_members

TOKENS_SUFFIX = "tokens.npy"


META_SUFFIX = "meta.json"


IMAGE_PREFIX = "image"


IGNORED_LABEL = -100
"""Label of a token that is not learned; the default of torch's cross entropy."""


_NPY_PRELUDE = 10  # magic, version 1.0, two bytes of header length


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Sample that was read back. Tokens and raw images are read-only views into the shard."""

    key: str
    input_ids: np.ndarray
    """int32 [num_tokens]."""
    labels: np.ndarray
    """int32 [num_tokens], -100 where nothing is learned."""
    images: tuple[np.ndarray, ...]
    """uint8 [height, width, 3] each."""
    meta: Mapping[str, Any]
    """Facts from preprocessing: `row`, `source`, `original_sizes` and counts. Parsed on demand
    (`StoredMeta`)."""


class StoredMeta(Mapping[str, Any]):
    """Values of a sample's `meta.json`, parsed when the first of them is read.

    Training reads none, and parsing all would cost as much as finding the members.
    """

    __slots__ = ("_members", "_values")

    def __init__(self, members: memoryview) -> None:
        """Store `members` of a tar, which begin with that member; empty if it is missing."""
        self._members = members
        self._values: Mapping[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        return self._parsed()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed())

    def __len__(self) -> int:
        return len(self._parsed())

    def __repr__(self) -> str:
        return repr(self._parsed())

    def _parsed(self) -> Mapping[str, Any]:
        if self._values is None:
            member = next(scan_members(self._members), None)
            self._values = {} if member is None else self._parse(member)
        return self._values

    def _parse(self, member: Member) -> Mapping[str, Any]:
        try:
            return json.loads(bytes(self._members[member.start : member.start + member.num_bytes]))
        except (ValueError, RecursionError) as error:
            message = f"{member.name}: no valid JSON ({error})"
            raise ValueError(message) from error


def pack_sample(
    *,
    key: str,
    input_ids: np.ndarray,
    labels: np.ndarray,
    images: list[bytes],
    image_suffix: str,
    meta: Mapping[str, Any],
) -> bytes:
    """Return the bytes of a sample within a tar; equal arguments give equal bytes."""
    stream = io.BytesIO()
    tokens = np.stack([input_ids, labels]).astype("<i4")
    np.lib.format.write_array(stream, tokens, version=(1, 0))
    members = [(TOKENS_SUFFIX, stream.getvalue())]
    members.append((META_SUFFIX, json.dumps(meta, sort_keys=True, ensure_ascii=False).encode()))
    members += [
        (f"{IMAGE_PREFIX}{index}.{image_suffix}", data) for index, data in enumerate(images)
    ]
    return sample_bytes(key, members)


def unpack_sample(buffer: memoryview) -> Sample:
    """Parse the sample whose members fill `buffer`.

    Raises:
        ValueError: the bytes are not a sample.
    """
    tokens: np.ndarray | None = None
    meta: Mapping[str, Any] = {}
    images: list[np.ndarray] = []
    key = ""
    for member in scan_members(buffer):
        key, _, suffix = member.name.partition(".")
        data = buffer[member.start : member.start + member.num_bytes]
        if suffix == TOKENS_SUFFIX:
            tokens = view_npy(data)
        elif suffix == META_SUFFIX:
            meta = StoredMeta(buffer[member.start - BLOCK : member.start + member.num_bytes])
        elif suffix.startswith(IMAGE_PREFIX):  # in the order of pack_sample
            images.append(decode_stored_image(data, suffix))
    if tokens is None:
        message = f"sample {key!r} has no member {TOKENS_SUFFIX}"
        raise ValueError(message)
    return Sample(key=key, input_ids=tokens[0], labels=tokens[1], images=tuple(images), meta=meta)


MAX_STORED_PIXELS = 178_956_970
"""Limit of a stored image, and of what Pillow opens."""


def decode_stored_image(data: memoryview, suffix: str) -> np.ndarray:
    """Return a stored image as uint8 [height, width, 3].

    libjpeg-turbo decodes JPEGs: the same pixels as Pillow, in less time. Shards may come from
    elsewhere (`stream.urls`), so Pillow tries only the formats that are stored.

    Raises:
        UnidentifiedImageError: the data is neither PNG nor WebP.
        ValueError: it states more pixels than are decoded.
    """
    if suffix.endswith(".npy"):
        return view_npy(data)
    if suffix.endswith(".jpg"):
        height, width, *_ = simplejpeg.decode_jpeg_header(data)
        _check_pixels(width, height)
        decoded: np.ndarray = simplejpeg.decode_jpeg(data, "RGB")
        return decoded
    try:
        image = Image.open(io.BytesIO(data), formats=("PNG", "WEBP"))
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error
    _check_pixels(*image.size)
    return np.asarray(image)


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_STORED_PIXELS:
        message = f"{width} x {height} pixels; stored images have at most {MAX_STORED_PIXELS:,}"
        raise ValueError(message)


def view_npy(data: memoryview) -> np.ndarray:
    """Return the array of a `.npy` member (version 1.0, C order) as a read-only view.

    Raises:
        ValueError: another kind of `.npy`, or a damaged one.
    """
    if bytes(data[:8]) != b"\x93NUMPY\x01\x00":
        message = "not an .npy file of version 1.0"
        raise ValueError(message)
    offset = _NPY_PRELUDE + int.from_bytes(data[8:10], "little")
    dtype, shape = _parse_npy_header(bytes(data[_NPY_PRELUDE:offset]))
    array = np.frombuffer(data, dtype=dtype, offset=offset).reshape(shape)
    array.flags.writeable = False
    return array


@functools.lru_cache(maxsize=4096)  # headers differ by shape only, and parsing one costs 20 us
def _parse_npy_header(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    try:
        values = ast.literal_eval(header.decode("latin1"))
        dtype, shape, is_fortran = (
            np.dtype(values["descr"]),
            values["shape"],
            values["fortran_order"],
        )
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        # Python's parser raises the last two for headers that are nested too deeply.
        message = f"an .npy file with a damaged header ({error!r})"
        raise ValueError(message) from error
    if is_fortran:
        message = "an .npy file in Fortran order"
        raise ValueError(message)
    return dtype, shape
