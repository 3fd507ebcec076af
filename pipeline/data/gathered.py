"""The arrays of several samples, one after the other: what a microbatch is assembled from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pipeline.data.sample_format import Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """Views of what is stored, or what became of it; nothing is copied yet."""

    keys: list[str]
    """Of the samples, as the next two."""
    input_ids: list[np.ndarray]
    """int32 [num_tokens] each."""
    labels: list[np.ndarray]
    """int32 [num_tokens] each."""
    images: list[np.ndarray]
    """uint8 [height * width * 3] each, of all samples in their order."""


def gather_samples(samples: Iterable[Sample], image_shape: tuple[int, int, int]) -> Gathered:
    """The arrays of samples that are there.

    Raises:
        ValueError: an image is not of `image_shape`.
    """
    found = Gathered(keys=[], input_ids=[], labels=[], images=[])
    for sample in samples:
        found.keys.append(sample.key)
        found.input_ids.append(sample.input_ids)
        found.labels.append(sample.labels)
        found.images.extend(flat_images(sample, image_shape))
    return found


def flat_images(
    sample: Sample, image_shape: tuple[int | None, int | None, int]
) -> list[np.ndarray]:
    """The images of a sample as `Gathered` has them.

    Raises:
        ValueError: an image is not of `image_shape`.
    """
    for image in sample.images:
        if image.shape != image_shape:
            message = f"sample {sample.key}: image {image.shape}, expected {image_shape}"
            raise ValueError(message)
    return [image.reshape(-1) for image in sample.images]
