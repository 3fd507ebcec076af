"""Plan of an image for the processors of the Gemma models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.formats.processors.image_plans import (
    NO_INPUTS,
    FixedImages,
    ImagePlan,
    ImageRules,
    Recipe,
    Size,
    UnfitImageError,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gemma3Images(FixedImages):
    """Rules for a single size of all images, with text around the tokens of each: Gemma 3.

    The template prints the first mark alone. There `Gemma3Processor` puts the image's tokens
    between both marks and two empty lines, before it tokenises the text. That matters because
    line breaks next to each other are one token of Gemma's tokenizers.
    """

    wrapping: tuple[str, str]
    """Marks before and after the tokens of an image."""

    @property
    def printed_token(self) -> str:
        """Token that the chat template prints for an image."""
        return self.wrapping[0]

    @property
    def written(self) -> str:
        """Text that replaces the printed token, with one image token."""
        start, end = self.wrapping
        return f"\n\n{start}{self.image_token}{end}\n\n"

    def pieces(self) -> frozenset[str]:
        """Return the token of an image and its marks."""
        return frozenset({self.image_token, *self.wrapping})


@dataclass(frozen=True, kw_only=True, slots=True)
class Gemma4Images(ImageRules):
    """Rules for the largest size of an image's proportions within a number of tokens: Gemma 4."""

    patch_size: int
    merge_size: int
    """Side, in patches, of the square that becomes one token: `pooling_kernel_size`."""
    max_tokens: int
    """Most tokens of an image: `max_soft_tokens`."""
    image_token: str
    marks: tuple[str, str]
    """Marks before and after the tokens of an image."""

    def _plan(self, size: Size) -> ImagePlan:
        """Plan as transformers' `get_aspect_ratio_preserving_size` and `Gemma4Processor`.

        Raises:
            UnfitImageError: the image is so thin that its tokens would be too many.
        """
        width, height = size
        side = self.patch_size * self.merge_size
        area = self.max_tokens * side**2
        scale = math.sqrt(area / (height * width))
        new_width = math.floor(scale * width / side) * side
        new_height = math.floor(scale * height / side) * side
        longest = self.max_tokens * side
        if new_height == 0:
            new_width, new_height = min(width // height * side, longest), side
        elif new_width == 0:
            new_width, new_height = side, min(height // width * side, longest)
        if new_width * new_height > area or min(new_width, new_height) < side:
            message = f"its proportions do not fit {self.max_tokens} tokens of {side} x {side}"
            raise UnfitImageError(message)
        num_tokens = (new_width // side) * (new_height // side)
        start, end = self.marks
        return ImagePlan(
            recipes=(Recipe(resizes=((new_width, new_height),)),),
            placeholder=((start, 1), (self.image_token, num_tokens), (end, 1)),
        )

    def pieces(self) -> frozenset[str]:
        """Return the token of an image and its marks."""
        return frozenset({self.image_token, *self.marks})

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`; an image is not repeated in time."""
        return {
            **NO_INPUTS,
            "image_kind": "native",
            "patch_size": self.patch_size,
            "merge_size": self.merge_size,
            "temporal_patch_size": 1,
        }
