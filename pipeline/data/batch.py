"""Samples to one batch of tensors, one or several of them in a row.

Samples that share a row never see each other: their positions begin anew, the
bounds of all segments are given for attention kernels, and no sample's first
token is learned, because it would be learned from the sample before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.data.buffers import BufferPool
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
    rows: Sequence[Sequence[Sample]],
    *,
    image_shape: tuple[int, int, int],
    pad_token_id: int,
    epoch: int,
    buffers: BufferPool,
    length: int | None = None,
    pin_memory: bool = False,
) -> Batch:
    """Put the samples of each row one after the other, pad the rows, and stack the images.

    `rows` are the samples of each row, none empty; `image_shape` is (height, width, 3) of every
    image; `length` None pads to the longest row; `pin_memory` puts the tensors where a GPU can copy
    them from without the host waiting.

    Raises:
        ValueError: an image is not of `image_shape`.
    """
    tokens = lay_out_tokens(rows, pad_token_id=pad_token_id, length=length)
    samples = [sample for row in rows for sample in row]
    images = stack_images(samples, image_shape, buffers)
    num_tokens = sum(len(sample.input_ids) for sample in samples)
    tensor = _pinned if pin_memory else torch.from_numpy
    return Batch(
        input_ids=tensor(tokens.input_ids),
        labels=tensor(tokens.labels),
        position_ids=tensor(tokens.position_ids),
        segment_bounds=tensor(tokens.segment_bounds),
        images=torch.from_numpy(images),  # pinned already, if `buffers` pins
        keys=tuple(sample.key for sample in samples),
        epoch=epoch,
        is_packed=len(samples) > len(rows),
        num_samples=len(samples),
        num_tokens=num_tokens,
        num_padding_tokens=tokens.input_ids.size - num_tokens,
        num_supervised_tokens=int(np.count_nonzero(tokens.labels != IGNORED_LABEL)),
        num_images=len(images),
    )


def _pinned(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).pin_memory()


def lay_out_tokens(
    rows: Sequence[Sequence[Sample]], *, pad_token_id: int, length: int | None = None
) -> TokenRows:
    """Token ids, labels, positions and segments; rows are padded on the right.

    Rows of one sample need no mask: with causal attention no real token sees the padding after it.
    """
    lengths = [sum(len(sample.input_ids) for sample in row) for row in rows]
    shape = (len(rows), max(lengths) if length is None else length)
    assert max(lengths) <= shape[1]
    input_ids = np.full(shape, pad_token_id, dtype=np.int64)
    labels = np.full(shape, IGNORED_LABEL, dtype=np.int64)
    position_ids = np.empty(shape, dtype=np.int64)
    bounds = [0]
    for number, row in enumerate(rows):
        start = 0
        for sample in row:
            end = start + len(sample.input_ids)
            input_ids[number, start:end] = sample.input_ids
            labels[number, start + 1 : end] = sample.labels[1:]
            position_ids[number, start:end] = np.arange(end - start)
            bounds.append(number * shape[1] + end)
            start = end
        position_ids[number, start:] = np.arange(shape[1] - start)
        if start < shape[1]:
            bounds.append((number + 1) * shape[1])
    return TokenRows(
        input_ids=input_ids,
        labels=labels,
        position_ids=position_ids,
        segment_bounds=np.asarray(bounds, dtype=np.int32),
    )


def stack_images(
    samples: Sequence[Sample], image_shape: tuple[int, int, int], buffers: BufferPool
) -> np.ndarray:
    """The images of all samples, uint8 [num_images, height, width, 3].

    Raises:
        ValueError: an image is not of `image_shape`.
    """
    num_images = sum(len(sample.images) for sample in samples)
    num_bytes = num_images * int(np.prod(image_shape))
    stacked = buffers.take(num_bytes).reshape(num_images, *image_shape)
    row = 0
    for sample in samples:
        for image in sample.images:
            if image.shape != image_shape:
                message = f"sample {sample.key}: image {image.shape}, expected {image_shape}"
                raise ValueError(message)
            stacked[row] = image
            row += 1
    return stacked
