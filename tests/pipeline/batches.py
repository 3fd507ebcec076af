"""What tests look at in a batch."""

from __future__ import annotations

import torch

from pipeline.data.batch import Batch


def images_of(batch: Batch) -> list[torch.Tensor]:
    """uint8 [height, width, 3] each."""
    sizes = batch.image_sizes.tolist()
    each = batch.pixels.split([height * width for height, width in sizes])
    return [pixels.view(*size, 3) for pixels, size in zip(each, sizes, strict=True)]
