"""Images of varying size, cut into patches row by row: PaddleOCR-VL."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipeline.models.layouts.image_layout import VisionInputs
from pipeline.models.layouts.native_patches import NativePatches


@dataclass(frozen=True, kw_only=True, slots=True)
class RasterPatches(NativePatches):
    """Like `NativePatches`, but `pixel_values` is [num_patches, 3, patch_size, patch_size]."""

    def _cut(self, image: torch.Tensor) -> torch.Tensor:
        patch = self.patch_size
        rows, columns = (side // patch for side in image.shape[:2])
        cut = image.view(rows, patch, columns, patch, 3)
        return cut.permute(0, 2, 4, 1, 3).reshape(-1, 3, patch, patch)

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        side, patch = self.merge_size, self.patch_size
        return {
            "pixel_values": torch.ones(side**2, 3, patch, patch, device=device, dtype=dtype),
            "image_grid_thw": ((1, side, side),),
        }
