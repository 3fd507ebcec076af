"""Images that keep their proportions within a range of pixels: the Qwen2-VL family."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.processors.plan import ImagePlan, Recipe, Size, UnfitImageError

_MAX_ASPECT_RATIO = 200
"""Limit of `smart_resize`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeImages:
    """Rules for sides that are multiples of `patch_size * merge_size`, with a limited product."""

    patch_size: int
    merge_size: int
    """Side, in patches, of the square that becomes one token."""
    temporal_patch_size: int
    """Number of times that the model repeats a still image in time; the copies are not stored."""
    min_pixels: int
    max_pixels: int
    image_token: str
    wrapping: tuple[str, str]

    def plan(self, size: Size) -> ImagePlan:
        """Plan as transformers' `Qwen2VLImageProcessor` and `Qwen2VLProcessor`.

        Raises:
            UnfitImageError: one side is more than 200 times the other.
        """
        width, height = smart_resize(
            size,
            factor=self.patch_size * self.merge_size,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
        )
        num_patches = (width // self.patch_size) * (height // self.patch_size)
        return ImagePlan(
            recipes=(Recipe(resizes=((width, height),)),),
            placeholder=((self.image_token, num_patches // self.merge_size**2),),
        )

    def pieces(self) -> frozenset[str]:
        """Return the image token alone."""
        return frozenset({self.image_token})

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`."""
        return {
            "image_kind": "native",
            "image_height": None,
            "image_width": None,
            "num_image_tokens": None,
            "patch_size": self.patch_size,
            "merge_size": self.merge_size,
            "temporal_patch_size": self.temporal_patch_size,
        }


def smart_resize(size: Size, *, factor: int, min_pixels: int, max_pixels: int) -> Size:
    """Return the size of a resized image, by transformers' function and arithmetic.

    Raises:
        UnfitImageError: one side is more than 200 times the other.
    """
    width, height = size
    ratio = max(size) / min(size)
    if ratio > _MAX_ASPECT_RATIO:
        message = (
            f"one side is {ratio:.0f} times the other, the processor takes {_MAX_ASPECT_RATIO}"
        )
        raise UnfitImageError(message)
    new_width, new_height = (round(side / factor) * factor for side in size)
    if new_width * new_height > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        new_width, new_height = (
            max(factor, math.floor(side / shrink / factor) * factor) for side in size
        )
    elif new_width * new_height < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        new_width, new_height = (math.ceil(side * grow / factor) * factor for side in size)
    return new_width, new_height
