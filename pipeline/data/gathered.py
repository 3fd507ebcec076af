"""The arrays of several samples, one after the other: what a microbatch is assembled from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pipeline.data.info import DatasetInfo
from pipeline.data.sample_format import Sample

ImageSize: TypeAlias = tuple[int, int]
"""Height and width in pixels."""


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
    image_sizes: list[ImageSize]
    """Of each of `images`."""
    original_sizes: list[ImageSize] | None
    """Of each picture before it was preprocessed, upright; one that was cut into tiles is several
    of `images`. None if they were not asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRule:
    """Which sizes the stored images of a data set may have."""

    size: ImageSize | None
    """Of every image; None where each has a size of its own."""
    multiple: int = 1
    """Of which height and width are multiples, in pixels."""

    def check(self, sample: Sample) -> None:
        """Compare the images of a sample.

        Raises:
            ValueError: naming the sample and the shape of the first that does not fit.
        """
        for image in sample.images:
            if not self._allows(image.shape):
                message = f"sample {sample.key}: image {image.shape}, expected {self}"
                raise ValueError(message)

    def _allows(self, shape: tuple[int, ...]) -> bool:
        if self.size is not None:
            return shape == (*self.size, 3)
        is_image = len(shape) == 3 and shape[2] == 3
        return is_image and not any(side % self.multiple for side in shape[:2])

    def __str__(self) -> str:
        if self.size is not None:
            return str((*self.size, 3))
        return f"(height, width, 3) with multiples of {self.multiple}"


def image_rule(info: DatasetInfo) -> ImageRule:
    """The rule of a data set."""
    if info.image_height is not None and info.image_width is not None:
        return ImageRule(size=(info.image_height, info.image_width))
    assert info.patch_size is not None  # `native`, as its dataset.json says
    assert info.merge_size is not None
    return ImageRule(size=None, multiple=info.patch_size * info.merge_size)


def gather_samples(
    samples: Iterable[Sample], rule: ImageRule, *, with_original_sizes: bool = False
) -> Gathered:
    """The arrays of samples that are there.

    Raises:
        ValueError: an image does not fit the rule.
    """
    found = Gathered(
        keys=[],
        input_ids=[],
        labels=[],
        images=[],
        image_sizes=[],
        original_sizes=[] if with_original_sizes else None,
    )
    for sample in samples:
        rule.check(sample)
        found.keys.append(sample.key)
        found.input_ids.append(sample.input_ids)
        found.labels.append(sample.labels)
        found.images.extend(image.reshape(-1) for image in sample.images)
        found.image_sizes.extend(image.shape[:2] for image in sample.images)
        if found.original_sizes is not None:
            found.original_sizes.extend(_original_sizes(sample))
    return found


def _original_sizes(sample: Sample) -> list[ImageSize]:
    """Of the pictures' files, which are noted width first.

    Raises:
        ValueError: they are not noted, or otherwise.
    """
    meta: Any = sample.meta
    sizes = meta.get("original_sizes") if isinstance(meta, Mapping) else None
    if sizes is None:
        message = f"sample {sample.key} does not tell the sizes of its pictures' files"
        raise ValueError(message)
    try:
        return [(int(height), int(width)) for width, height in sizes]
    except (TypeError, ValueError) as error:
        message = (
            f"sample {sample.key}: original_sizes is {sizes!r:.60}, not a width and a height for "
            "each picture"
        )
        raise ValueError(message) from error
