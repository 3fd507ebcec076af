"""Images of varying size, padded to the largest of the batch: Mistral 3, LightOnOCR."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from pipeline.data.batch import ModelNeeds
from pipeline.models.layouts.image_layout import StoredImages, VisionInputs
from pipeline.models.layouts.pixel_scale import PixelScale


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddedPictures:
    """`pixel_values` [num_images, 3, height, width], and `image_sizes`, on the host."""

    scale: PixelScale
    token_side: int
    """Side of a token in pixels."""

    @property
    def needs(self) -> ModelNeeds:
        """No requirements: tokens are numbered like text."""
        return ModelNeeds()

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        scaled = self.scale(images.pixels).to(dtype)
        sizes = images.sizes.tolist()
        most_rows, most_columns = images.sizes.amax(dim=0).tolist()
        padded = []
        pixels_of_each = scaled.split([height * width for height, width in sizes])
        for pixels, (height, width) in zip(pixels_of_each, sizes, strict=True):
            image = pixels.view(height, width, 3).permute(2, 0, 1)
            padded.append(functional.pad(image, (0, most_columns - width, 0, most_rows - height)))
        return {
            "pixel_values": torch.stack(padded),
            "image_sizes": tuple((height, width) for height, width in sizes),
        }

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        side = self.token_side
        return {
            "pixel_values": torch.ones(1, 3, side, side, device=device, dtype=dtype),
            "image_sizes": ((side, side),),
        }
