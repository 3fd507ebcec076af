"""Samples to one batch of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.data.sample_format import IGNORED_LABEL, Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """A microbatch of one rank, on the host."""

    input_ids: torch.Tensor
    """int64 [num_samples, length], padded on the right."""
    labels: torch.Tensor
    """int64 [num_samples, length], -100 where nothing is learned; not shifted."""
    images: torch.Tensor
    """uint8 [num_images, height, width, 3], in the order of the image tokens."""
    keys: tuple[str, ...]
    """Keys of the samples."""
    epoch: int
    """Of the first sample of the global batch."""
    num_samples: int
    num_tokens: int
    """Real ones, image tokens included."""
    num_padding_tokens: int
    num_supervised_tokens: int
    num_images: int


def collate(
    samples: Sequence[Sample],
    *,
    image_shape: tuple[int, int, int],
    pad_token_id: int,
    epoch: int,
    pin_memory: bool = False,
) -> Batch:
    """Pad the samples to the longest, and stack their images.

    `pin_memory` puts the tensors where a GPU can copy them from without the host waiting.

    Raises:
        ValueError: an image is not of `image_shape` (height, width, 3).
    """
    input_ids, labels = pad_tokens(samples, pad_token_id=pad_token_id)
    num_tokens = sum(len(sample.input_ids) for sample in samples)
    images = stack_images(samples, image_shape)

    def tensor(array: np.ndarray) -> torch.Tensor:
        values = torch.from_numpy(array)
        return values.pin_memory() if pin_memory else values

    return Batch(
        input_ids=tensor(input_ids),
        labels=tensor(labels),
        images=tensor(images),
        keys=tuple(sample.key for sample in samples),
        epoch=epoch,
        num_samples=len(samples),
        num_tokens=num_tokens,
        num_padding_tokens=input_ids.size - num_tokens,
        num_supervised_tokens=int(np.count_nonzero(labels != IGNORED_LABEL)),
        num_images=len(images),
    )


def pad_tokens(samples: Sequence[Sample], *, pad_token_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and labels, each int64 [num_samples, length of the longest], padded on the right.

    No mask is needed: with causal attention no real token sees the padding after it.
    """
    shape = (len(samples), max(len(sample.input_ids) for sample in samples))
    input_ids = np.full(shape, pad_token_id, dtype=np.int64)
    labels = np.full(shape, IGNORED_LABEL, dtype=np.int64)
    for row, sample in enumerate(samples):
        num_tokens = len(sample.input_ids)
        input_ids[row, :num_tokens] = sample.input_ids
        labels[row, :num_tokens] = sample.labels
    return input_ids, labels


def stack_images(samples: Sequence[Sample], image_shape: tuple[int, int, int]) -> np.ndarray:
    """The images of all samples, uint8 [num_images, height, width, 3].

    Raises:
        ValueError: an image is not of `image_shape`.
    """
    stacked = np.empty((sum(len(s.images) for s in samples), *image_shape), dtype=np.uint8)
    row = 0
    for sample in samples:
        for image in sample.images:
            if image.shape != image_shape:
                message = f"sample {sample.key}: image {image.shape}, expected {image_shape}"
                raise ValueError(message)
            stacked[row] = image
            row += 1
    return stacked
