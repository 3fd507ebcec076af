"""The whole image and tiles of it, matched by the image's size: LLaVA-NeXT."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipeline.data.batch import ModelNeeds
from pipeline.models.layouts.model import StoredImages, VisionInputs
from pipeline.models.pixels import PixelScale, stack_images


@dataclass(frozen=True, kw_only=True, slots=True)
class AnyresTiles:
    """`pixel_values` [num_tiles, 3, height, width], and `image_sizes` of original images."""

    scale: PixelScale
    size: tuple[int, int]
    """Height and width of every tile."""
    smallest_grid: tuple[int, int]
    """Height and width of the grid with the fewest tiles, of the model's `image_grid_pinpoints`."""

    @property
    def needs(self) -> ModelNeeds:
        """Sizes of the original images, from which the model assigns tiles to images."""
        return ModelNeeds(original_sizes=True)

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        assert images.original_sizes is not None
        tiles = stack_images(images.pixels, self.size, self.scale, dtype)
        sizes = tuple((height, width) for height, width in images.original_sizes.tolist())
        return {"pixel_values": tiles, "image_sizes": sizes}

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        height, width = self.size
        num_tiles = (self.smallest_grid[0] // height) * (self.smallest_grid[1] // width)
        tiles = torch.ones(1 + num_tiles, 3, height, width, device=device, dtype=dtype)
        return {"pixel_values": tiles, "image_sizes": (self.smallest_grid,)}
