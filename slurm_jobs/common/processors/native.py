"""Every image keeps its proportions, and as many pixels as a range allows: the Qwen2-VL family."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.processors.plan import ImagePlan, Recipe, Size, UnfitImageError

_MAX_ASPECT_RATIO = 200
"""Of `smart_resize`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeImages:
    """Sides are multiples of `patch_size * merge_size`, their product within the two limits."""

    patch_size: int
    merge_size: int
    """A square of this many patches a side becomes one token."""
    temporal_patch_size: int
    """How often the model repeats a still image in time; nothing of it is stored."""
    min_pixels: int
    max_pixels: int
    image_token: str
    wrapping: tuple[str, str]

    def plan(self, size: Size) -> ImagePlan:
        """As transformers' `Qwen2VLImageProcessor` and `Qwen2VLProcessor.replace_image_token`.

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
        """The image token alone."""
        return frozenset({self.image_token})

    def model_inputs(self) -> Mapping[str, Any]:
        """Of `DatasetInfo`."""
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
    """The size that an image gets: transformers' function of this name, in its arithmetic.

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
