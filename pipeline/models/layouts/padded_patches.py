"""Images of varying size as rows of patches that are padded to the longest: Gemma 4."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from pipeline.data.batch import ModelNeeds
from pipeline.models.layouts.image_layout import StoredImages, VisionInputs
from pipeline.models.layouts.pixel_scale import PixelScale, each_image

PADDING = -1
"""Column and row of a patch that is none."""
GRIDS = "image_grids"
"""Name of the rows and columns of patches of each image, on the host, which only
`encode_padded_images` takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddedPatches:
    """`pixel_values` [num_images, num_patches, values], and column and row of each patch.

    transformers pads all images to the most patches that its processor may make; here they are
    padded to those of the batch's largest image.
    """

    scale: PixelScale
    patch_size: int
    merge_size: int
    """Side, in patches, of the square that becomes one token."""

    @property
    def needs(self) -> ModelNeeds:
        """No requirements: tokens are numbered like text."""
        return ModelNeeds()

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        sizes = images.sizes.tolist()
        patch = self.patch_size
        grids = tuple((height // patch, width // patch) for height, width in sizes)
        most = max(rows * columns for rows, columns in grids)
        patches, places = [], []
        each = each_image(images.pixels, sizes, self.scale, dtype)
        for image, (rows, columns) in zip(each, grids, strict=True):
            cut = image.view(rows, patch, columns, patch, 3).permute(0, 2, 1, 3, 4)
            num_missing = most - rows * columns
            flat = cut.reshape(rows * columns, -1)
            patches.append(functional.pad(flat, (0, 0, 0, num_missing)))
            grid = _columns_and_rows(rows, columns, image.device)
            places.append(functional.pad(grid, (0, 0, 0, num_missing), value=PADDING))
        return {
            "pixel_values": torch.stack(patches),
            "image_position_ids": torch.stack(places),
            GRIDS: grids,
        }

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        side = self.merge_size
        shape = (1, side * side, 3 * self.patch_size**2)
        return {
            "pixel_values": torch.ones(shape, device=device, dtype=dtype),
            "image_position_ids": _columns_and_rows(side, side, device)[None],
            GRIDS: ((side, side),),
        }


def _columns_and_rows(num_rows: int, num_columns: int, device: torch.device) -> torch.Tensor:
    """Return int64 [num_rows * num_columns, 2]: column and row of each patch."""
    numbers = torch.arange(num_rows * num_columns, device=device)
    return torch.stack([numbers % num_columns, numbers // num_columns], dim=-1)
