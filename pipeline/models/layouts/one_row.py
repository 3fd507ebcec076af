"""Tiles of one size, all of a batch in one row: Idefics3 and SmolVLM."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipeline.data.batch import ModelNeeds
from pipeline.models.layouts.model import StoredImages, VisionInputs
from pipeline.models.pixels import PixelScale, stack_images


@dataclass(frozen=True, kw_only=True, slots=True)
class TilesInOneRow:
    """`pixel_values` [1, num_tiles, 3, height, width], whatever the number of rows of text.

    These models pad rows that have fewer tiles than others with black ones, and drop tiles that
    are 0 throughout. A single row needs no padding, and so no mask of pixels.
    """

    scale: PixelScale
    size: tuple[int, int]
    """Height and width of every tile."""

    @property
    def needs(self) -> ModelNeeds:
        """No requirements."""
        return ModelNeeds()

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        return {"pixel_values": stack_images(images.pixels, self.size, self.scale, dtype)[None]}

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`; of ones, because zeros would be dropped."""
        return {"pixel_values": torch.ones(1, 1, 3, *self.size, device=device, dtype=dtype)}
