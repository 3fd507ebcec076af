"""Images of one size, concatenated: LLaVA 1.5 and the built-in small model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipeline.data.batch import ModelNeeds
from pipeline.models.layouts.model import StoredImages, VisionInputs
from pipeline.models.pixels import PixelScale, stack_images


@dataclass(frozen=True, kw_only=True, slots=True)
class StackedImages:
    """`pixel_values` [num_images, 3, height, width]."""

    scale: PixelScale
    size: tuple[int, int]
    """Height and width of every image."""

    @property
    def needs(self) -> ModelNeeds:
        """No requirements."""
        return ModelNeeds()

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        return {"pixel_values": stack_images(images.pixels, self.size, self.scale, dtype)}

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        return {"pixel_values": torch.ones(1, 3, *self.size, device=device, dtype=dtype)}
