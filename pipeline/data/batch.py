"""Samples to one batch of tensors, one or several of them in a row.

Samples that share a row never see each other: their positions begin anew, the
bounds of all segments are given for attention kernels, and no sample's first
token is learned, because it would be learned from the sample before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pipeline.data.buffers import BufferPool
from pipeline.data.gathered import Gathered, gather_samples
from pipeline.data.sample_format import IGNORED_LABEL, Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """A microbatch of one rank, on the host.

    The pixels' memory is used again once nobody holds `images`: hold the batch until the device
    has copied it.
    """

    input_ids: torch.Tensor
    """int64 [num_rows, length], padded on the right."""
    labels: torch.Tensor
    """int64 [num_rows, length], -100 where nothing is learned; not shifted."""
    position_ids: torch.Tensor
    """int64 [num_rows, length], from 0 in every sample, and from 0 in the padding of a row."""
    segment_bounds: torch.Tensor
    """int32 [num_segments + 1]: where segments begin and end in the rows one after the other. A
    segment is a sample, or the padding of a row."""
    images: torch.Tensor
    """uint8 [num_images, height, width, 3], in the order of the image tokens."""
    keys: tuple[str, ...]
    """Keys of the samples."""
    epoch: int
    """Of the first row of the global batch."""
    is_packed: bool
    """Whether any row holds more than one sample."""
    num_samples: int
    num_tokens: int
    """Real ones, image tokens included."""
    num_padding_tokens: int
    num_supervised_tokens: int
    num_images: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRows:
    """The text side of a batch; all arrays are [num_rows, length] but the last."""

    input_ids: np.ndarray
    """int64."""
    labels: np.ndarray
    """int64."""
    position_ids: np.ndarray
    """int64."""
    segment_bounds: np.ndarray
    """int32 [num_segments + 1]."""


def collate(
    rows: Sequence[Sequence[Sample]], *, image_shape: tuple[int, int, int], **settings: Any
) -> Batch:
    """`assemble` of the samples of each row; none is empty.

    Raises:
        ValueError: an image is not of `image_shape`, which is (height, width, 3).
    """
    gathered = gather_samples(itertools.chain.from_iterable(rows), image_shape)
    row_sizes = [len(row) for row in rows]
    return assemble(gathered, row_sizes, image_shape=image_shape, **settings)


def assemble(
    gathered: Gathered,
    row_sizes: Sequence[int],
    *,
    image_shape: tuple[int, int, int],
    pad_token_id: int,
    epoch: int,
    buffers: BufferPool,
    length: int | None = None,
    pin_memory: bool = False,
) -> Batch:
    """Put the samples of each row one after the other, pad the rows, and stack the images.

    `row_sizes` are the samples of each row, at least one; `image_shape` is (height, width, 3) of
    every image; `length` None pads to the longest row; `pin_memory` puts the tensors where a GPU
    can copy them from without the host waiting.
    """
    tokens = lay_out_tokens(gathered, row_sizes, pad_token_id=pad_token_id, length=length)
    images = stack_images(gathered.images, image_shape, buffers)
    num_tokens = sum(map(len, gathered.input_ids))
    tensor = _pinned if pin_memory else torch.from_numpy
    return Batch(
        input_ids=tensor(tokens.input_ids),
        labels=tensor(tokens.labels),
        position_ids=tensor(tokens.position_ids),
        segment_bounds=tensor(tokens.segment_bounds),
        images=torch.from_numpy(images),  # pinned already, if `buffers` pins
        keys=tuple(gathered.keys),
        epoch=epoch,
        is_packed=len(gathered.keys) > len(row_sizes),
        num_samples=len(gathered.keys),
        num_tokens=num_tokens,
        num_padding_tokens=tokens.input_ids.size - num_tokens,
        num_supervised_tokens=int(np.count_nonzero(tokens.labels != IGNORED_LABEL)),
        num_images=len(images),
    )


def _pinned(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).pin_memory()


def _width(sizes: Sequence[int], lasts: Sequence[int], length: int | None) -> int:
    """Tokens of a row; the samples of row r end before number `lasts[r]`."""
    longest = max(sum(sizes[start:last]) for start, last in itertools.pairwise([0, *lasts]))
    assert length is None or longest <= length
    return longest if length is None else length


def lay_out_tokens(
    gathered: Gathered, row_sizes: Sequence[int], *, pad_token_id: int, length: int | None = None
) -> TokenRows:
    """Token ids, labels, positions and segments; rows are padded on the right.

    Rows of one sample need no mask: with causal attention no real token sees the padding after it.
    """
    sizes = [len(ids) for ids in gathered.input_ids]
    lasts = list(itertools.accumulate(row_sizes))
    width = _width(sizes, lasts, length)
    num_places = len(row_sizes) * width
    input_ids = np.full(num_places, pad_token_id, dtype=np.int64)
    labels = np.full(num_places, IGNORED_LABEL, dtype=np.int64)
    position_ids = np.empty(num_places, dtype=np.int64)
    from_zero = np.arange(width)
    bounds = [0]
    sample = 0
    for last, row_end in zip(lasts, range(width, num_places + 1, width), strict=True):
        start = row_end - width
        while sample < last:
            size = sizes[sample]
            end = start + size
            input_ids[start:end] = gathered.input_ids[sample]
            labels[start + 1 : end] = gathered.labels[sample][1:]
            position_ids[start:end] = from_zero[:size]
            bounds.append(end)
            start = end
            sample += 1
        if start < row_end:
            position_ids[start:row_end] = from_zero[: row_end - start]
            bounds.append(row_end)
    shape = (len(row_sizes), width)
    return TokenRows(
        input_ids=input_ids.reshape(shape),
        labels=labels.reshape(shape),
        position_ids=position_ids.reshape(shape),
        segment_bounds=np.asarray(bounds, dtype=np.int32),
    )


def stack_images(
    images: Sequence[np.ndarray], image_shape: tuple[int, int, int], buffers: BufferPool
) -> np.ndarray:
    """All images, each given as its bytes: uint8 [num_images, height, width, 3]."""
    num_bytes = int(np.prod(image_shape))
    stacked = buffers.take(len(images) * num_bytes).reshape(len(images), num_bytes)
    for row, image in enumerate(images):
        stacked[row] = image
    return stacked.reshape(len(images), *image_shape)
