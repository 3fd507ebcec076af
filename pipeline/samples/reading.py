"""Samples as bytes of their shards: the tokens of all, and everything of a few.

The members of a sample begin with its tokens and `meta.json`. To look at these alone, that much is
read of each, however large its images are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.index import DatasetIndex
from pipeline.data.info import DatasetInfo
from pipeline.data.sample_format import IMAGE_PREFIX, META_SUFFIX, TOKENS_SUFFIX, view_npy
from pipeline.data.tar import BLOCK, scan_members
from slurm_jobs.common.dataset_names import SHARDS_DIR

BROKEN = (ValueError, TypeError, KeyError, SyntaxError, ArithmeticError, RecursionError)
"""What bytes that are no sample of ours can raise where they are taken for one."""

_META_BYTES = 2048
"""That `meta.json` usually fits into; where it does not, the whole sample is read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawSample:
    """A sample without its pictures decoded."""

    tokens: np.ndarray
    """int32 [2, num_tokens]: token ids and labels."""
    meta: Mapping[str, Any]
    images: tuple[tuple[str, memoryview], ...]
    """Suffix (`image0.png`) and bytes of each; empty where only the head was read."""


def shard_path(folder: Path, info: DatasetInfo, shard: int) -> Path:
    """Of a shard of the data set.

    Raises:
        ValueError: it has no such shard.
    """
    if not 0 <= shard < info.num_shards:
        message = f"the index names shard {shard}, there are {info.num_shards}"
        raise ValueError(message)
    return folder / SHARDS_DIR / info.shards[shard].name


def read_head(file: int, index: DatasetIndex, number: int) -> RawSample:
    """Tokens and `meta.json` of sample `number`, from the open shard that it lies in.

    Raises:
        BROKEN: there is no sample.
        OSError: the shard cannot be read.
    """
    num_bytes = int(index.num_bytes[number])
    head = 3 * BLOCK + 8 * int(index.num_tokens[number]) + BLOCK + _META_BYTES
    if head < num_bytes:
        data = os.pread(file, head, int(index.offset[number]))
        try:
            return parse(memoryview(data))
        except BROKEN:  # cut short by ourselves, most likely
            pass
    return read_whole(file, index, number)


def read_whole(file: int, index: DatasetIndex, number: int) -> RawSample:
    """All of sample `number`, as `read_head`."""
    num_bytes = int(index.num_bytes[number])
    data = os.pread(file, max(0, num_bytes), max(0, int(index.offset[number])))
    if len(data) < num_bytes:
        message = f"cut short: {len(data)} of {num_bytes} bytes"
        raise ValueError(message)
    return parse(memoryview(data), wants_images=True)


def parse(data: memoryview, *, wants_images: bool = False) -> RawSample:
    """The members that `data` begins with; without images, up to the two that are wanted.

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
