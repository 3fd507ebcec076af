"""Samples read from their shards: the tokens of all, and everything of a few.

A sample's members begin with its tokens and `meta.json`. To check only these, the start of each
sample is read, however large its images are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.data.disk_format.index import DatasetIndex
from pipeline.data.disk_format.sample_members import (
    IMAGE_PREFIX,
    META_SUFFIX,
    TOKENS_SUFFIX,
    view_npy,
)
from pipeline.data.disk_format.tar_format import BLOCK, scan_members

BROKEN = (ValueError, TypeError, KeyError, SyntaxError, ArithmeticError, RecursionError)
"""Errors from parsing bytes that are not a valid sample."""
_META_BYTES = 2048
"""Usual size of `meta.json`; if it is larger, the whole sample is read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawSample:
    """Sample with encoded images."""

    tokens: np.ndarray
    """int32 [2, num_tokens]: token ids and labels."""
    meta: Mapping[str, Any]
    images: tuple[tuple[str, memoryview], ...]
    """Suffix (`image0.png`) and bytes of each; empty if only the head was read."""


def read_head(file: int, index: DatasetIndex, number: int) -> RawSample:
    """Read tokens and `meta.json` of sample `number` from its open shard.

    Raises:
        BROKEN: there is no valid sample.
        OSError: the shard cannot be read.
    """
    num_bytes = int(index.num_bytes[number])
    head = 3 * BLOCK + 8 * int(index.num_tokens[number]) + BLOCK + _META_BYTES
    if head < num_bytes:
        data = os.pread(file, head, int(index.offset[number]))
        try:
            return parse(memoryview(data))
        except BROKEN:  # most likely truncated by reading only the head
            pass
    return read_whole(file, index, number)


def read_whole(file: int, index: DatasetIndex, number: int) -> RawSample:
    """Read all of sample `number`; raises like `read_head`."""
    num_bytes = int(index.num_bytes[number])
    data = os.pread(file, max(0, num_bytes), max(0, int(index.offset[number])))
    if len(data) < num_bytes:
        message = f"cut short: {len(data)} of {num_bytes} bytes"
        raise ValueError(message)
    return parse(memoryview(data), wants_images=True)


def parse(data: memoryview, *, wants_images: bool = False) -> RawSample:
    """Parse the members at the start of `data`; without images, up to tokens and meta.

    Raises:
        BROKEN: a member is damaged or missing.
    """
    tokens, meta, images = None, None, []
    for member in scan_members(data):
        suffix = member.name.partition(".")[2]
        content = data[member.start : member.start + member.num_bytes]
        if suffix == TOKENS_SUFFIX:
            tokens = view_npy(content)
        elif suffix == META_SUFFIX:
            meta = json.loads(bytes(content))
        elif suffix.startswith(IMAGE_PREFIX):
            images.append((suffix, content))
        if tokens is not None and meta is not None and not wants_images:
            break
    if tokens is None or not isinstance(meta, dict):
        message = f"it has no {TOKENS_SUFFIX if tokens is None else META_SUFFIX}"
        raise ValueError(message)
    if tokens.dtype != np.int32 or tokens.ndim != 2 or len(tokens) != 2 or not tokens.shape[1]:
        message = (
            f"{TOKENS_SUFFIX} is {tokens.dtype} {list(tokens.shape)}, no int32 [2, num_tokens]"
        )
        raise ValueError(message)
    return RawSample(tokens=tokens, meta=meta, images=tuple(images))
