"""Plan of an image for Pixtral's image processor, as in Mistral 3 and LightOnOCR."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.formats.processors.image_plans import (
    NO_INPUTS,
    ImagePlan,
    ImageRules,
    Recipe,
    Size,
    UnfitImageError,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PixtralImages(ImageRules):
    """Rules for images of their own size, reduced to limits of both sides."""

    longest_edge: int
    step: int
    """Sides are multiples of it: `patch_size` of the image processor."""
    patch_size: int
    """Side of a patch of the vision tower, from the processor."""
    merge_size: int
    """Side, in patches, of the square that becomes one token."""
    image_token: str
    row_marks: tuple[str, str] | None
    """Tokens after each row of an image and after the last; None: none."""

    def _plan(self, size: Size) -> ImagePlan:
        """Plan as `PixtralImageProcessor`, `PixtralProcessor` and `LightOnOcrProcessor`.

        Raises:
            UnfitImageError: a side is shorter than a token.
        """
        ratio = max(size) / self.longest_edge
        if ratio > 1:
            size = (math.floor(size[0] / ratio), math.floor(size[1] / ratio))
        # transformers rounds up like this, also a side of no pixels.
        width, height = (((side - 1) // self.step + 1) * self.step for side in size)
        side = self.patch_size * self.merge_size
        num_columns, num_rows = width // side, height // side
        if not num_columns * num_rows:
            message = f"resized to {width} x {height} pixels; a token is {side} x {side}"
            raise UnfitImageError(message)
        placeholder: tuple[tuple[str, int], ...] = ((self.image_token, num_columns * num_rows),)
        if self.row_marks is not None:
            row, (after_row, after_all) = (self.image_token, num_columns), self.row_marks
            placeholder = (*((row, (after_row, 1)) * num_rows)[:-1], (after_all, 1))
        return ImagePlan(recipes=(Recipe(resizes=((width, height),)),), placeholder=placeholder)

    def pieces(self) -> frozenset[str]:
        """Return the token of an image and the marks of rows."""
        return frozenset({self.image_token, *(self.row_marks or ())})

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`; an image is not repeated in time."""
        return {
            **NO_INPUTS,
            "image_kind": "native",
            "patch_size": self.patch_size,
            "merge_size": self.merge_size,
            "temporal_patch_size": 1,
        }
