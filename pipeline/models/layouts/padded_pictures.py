"""Images of varying size, padded to the largest of the batch: Mistral 3, LightOnOCR."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from pipeline.data.batch import ModelNeeds
from pipeline.models.layouts.image_layout import StoredImages, VisionInputs
from pipeline.models.layouts.pixel_scale import PixelScale, each_image


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
        sizes = images.sizes.tolist()
        most_rows, most_columns = images.sizes.amax(dim=0).tolist()
        padded = []
        for image in each_image(images.pixels, sizes, self.scale, dtype):
            height, width, _ = image.shape
            missing = (0, most_columns - width, 0, most_rows - height)
            padded.append(functional.pad(image.permute(2, 0, 1), missing))
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
