"""Arrays of several samples, one after the other, from which a microbatch is assembled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.data.disk_format.sample_members import Sample

ImageSize: TypeAlias = tuple[int, int]
"""Height and width in pixels."""

Picture: TypeAlias = tuple[int, int, int]
"""Height and width in pixels of an upright picture, and number of pictures of its sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """Views of stored or augmented samples; nothing is copied yet."""

    keys: list[str]
    """One per sample, as for the next two lists."""
    input_ids: list[np.ndarray]
    """int32 [num_tokens] each."""
    labels: list[np.ndarray]
    """int32 [num_tokens] each."""
    images: list[np.ndarray]
    """uint8 [height * width * 3] each, images of all samples in their order."""
    image_sizes: list[ImageSize]
    """Size of each of `images`."""
    num_images: list[int]
    """Number of `images` of each sample."""
    pictures: list[Picture] | None
    """Each picture before preprocessing, which may have become several of `images`. None unless
    requested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRule:
    """Sizes that the stored images of a data set may have."""

    size: ImageSize | None
    """Size of every image; None where sizes differ."""
    multiple: int = 1
    """Divisor of height and width, in pixels."""

    def check(self, sample: Sample) -> None:
        """Compare the images of a sample.

        Raises:
            ValueError: an image does not fit; the message names the sample and the shape.
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
    """Return the rule of a data set."""
    if info.image_height is not None and info.image_width is not None:
        return ImageRule(size=(info.image_height, info.image_width))
    assert info.patch_size is not None  # `native`, as its dataset.json says
    assert info.merge_size is not None
    return ImageRule(size=None, multiple=info.patch_size * info.merge_size)


def gather_samples(
    samples: Iterable[Sample], rule: ImageRule, *, with_pictures: bool = False
) -> Gathered:
    """Return the arrays of samples in memory.

    Raises:
        ValueError: an image does not fit the rule.
    """
    gathered = Gathered(
        keys=[],
        input_ids=[],
        labels=[],
        images=[],
        image_sizes=[],
        num_images=[],
        pictures=[] if with_pictures else None,
    )
    for sample in samples:
        rule.check(sample)
        gathered.keys.append(sample.key)
        gathered.input_ids.append(sample.input_ids)
        gathered.labels.append(sample.labels)
        gathered.images.extend(image.reshape(-1) for image in sample.images)
        gathered.image_sizes.extend(image.shape[:2] for image in sample.images)
        gathered.num_images.append(len(sample.images))
        if gathered.pictures is not None:
            gathered.pictures.extend(_pictures(sample))
    return gathered


def _pictures(sample: Sample) -> list[Picture]:
    """Return the pictures of a sample, whose sizes are stored width first.

    Raises:
        ValueError: they are missing or malformed.
    """
    meta: Any = sample.meta
    sizes = meta.get("original_sizes") if isinstance(meta, Mapping) else None
    if sizes is None:
        message = f"sample {sample.key} has no sizes of its original image files"
        raise ValueError(message)
    try:
        return [(int(height), int(width), len(sizes)) for width, height in sizes]
    except (TypeError, ValueError) as error:
        message = (
            f"sample {sample.key}: original_sizes is {sizes!r:.60}, not a width and a height for "
            "each picture"
        )
        raise ValueError(message) from error
