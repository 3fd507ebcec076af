"""Random changes of images at reading time: new ones each epoch, the same after a resume.

They depend on the seed, the epoch and the sample's number only, not on ranks, threads or the
step at which training started.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageEnhance

from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.data.disk_format.sample_members import Sample
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_parts import AugmentConfig

_AUGMENT_WORD = 2
"""Separates these seeds from those of the order."""


_MAX_STRETCH = 4 / 3
"""Limit of a crop's aspect ratio, as in torchvision's RandomResizedCrop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """Augmentation of a sample's images as the config says."""

    config: AugmentConfig
    seed: int

    def __call__(self, sample: Sample, *, number: int, epoch: int) -> Sample:
        """Return the sample with changed images of the same sizes; tokens stay.

        Args:
            sample: The stored sample.
            number: Its number in the index.
            epoch: The epoch that reads it.
        """
        if not sample.images:
            return sample
        words = [_AUGMENT_WORD, self.seed, epoch, number]
        draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
        colours = self._draw_colours(draw)
        images = tuple(self._change(image, draw, colours) for image in sample.images)
        return dataclasses.replace(sample, images=images)

    def _draw_colours(self, draw: np.random.Generator) -> list[tuple[Enhancer, float]]:
        """Draw enhancers and factors in random order, the same for all images of a sample."""
        ranges = (
            (ImageEnhance.Brightness, self.config.brightness),
            (ImageEnhance.Contrast, self.config.contrast),
            (ImageEnhance.Color, self.config.saturation),
        )
        factors = [(kind, draw.uniform(1 - most, 1 + most)) for kind, most in ranges]
        order = draw.permutation(len(factors))
        return [factors[i] for i in order if factors[i][1] != 1.0]

    def _change(
        self,
        pixels: np.ndarray,
        draw: np.random.Generator,
        colours: list[tuple[Enhancer, float]],
    ) -> np.ndarray:
        """Return a changed image, uint8 [height, width, 3], of the same size."""
        image = Image.fromarray(pixels)
        box = draw_box(draw, image.size, self.config.min_crop_share)
        if box is not None:
            image = image.resize(image.size, Image.Resampling.BICUBIC, box=box)
        if draw.random() < self.config.mirror_share:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        for kind, factor in colours:
            image = kind(image).enhance(factor)
        return np.asarray(image)


Enhancer = Callable[[Image.Image], ImageEnhance._Enhance]  # noqa: SLF001 - no public base class


def draw_box(
    draw: np.random.Generator, size: tuple[int, int], min_share: float
) -> tuple[float, float, float, float] | None:
    """Draw a crop of `min_share` of the area or more; None for the whole image.

    Drawn as in torchvision's RandomResizedCrop: area uniform, aspect ratio log-uniform.
    """
    share = draw.uniform(min_share, 1.0)
    stretch = np.exp(draw.uniform(-np.log(_MAX_STRETCH), np.log(_MAX_STRETCH)))
    x_share, y_share = draw.random(2)
    if min_share >= 1.0:
        return None
    width, height = size
    cut_width = min(width, width * np.sqrt(share * stretch))
    cut_height = min(height, height * np.sqrt(share / stretch))
    left, top = x_share * (width - cut_width), y_share * (height - cut_height)
    return (left, top, left + cut_width, top + cut_height)


def check_augmentation(config: AugmentConfig, info: DatasetInfo, key: str = "augment") -> None:
    """Refuse changes that would make the tiles of an image inconsistent.

    `key` is the name of the config in messages.

    Raises:
        StageConfigError: images that are stored as tiles would be mirrored or cropped.
    """
    requested = [
        f"{key}.{name} is {value:g}"
        for name, value, unchanged in (
            ("mirror_share", config.mirror_share, 0.0),
            ("min_crop_share", config.min_crop_share, 1.0),
        )
        if value != unchanged
    ]
    if requested and info.image_kind == "tiled":
        message = (
            f"{' and '.join(requested)}: the data set's processor cuts images into tiles, and each "
            "tile would be changed separately, so that the tiles no longer fit together; remove "
            "these settings (brightness, contrast and saturation are allowed)"
        )
        raise StageConfigError(message)


def make_augmentation(config: AugmentConfig, seed: int) -> Augmentation | None:
    """Return the augmentation of a config; None if it changes nothing."""
    return None if config == AugmentConfig() else Augmentation(config=config, seed=seed)
