"""From decoded pixels to what a vision encoder takes, on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def normalise_pixels(
    images: torch.Tensor,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Scale to 0..1, subtract `mean`, divide by `std`, channels first.

    One byte a channel crosses to the device, a quarter of what floats would cost.

    Args:
        images: uint8 [num_images, height, width, 3], on the device.
        mean: Of each channel, after scaling to 0..1.
        std: Of each channel, after scaling to 0..1.
        dtype: Of the result.

    Returns:
        `dtype` [num_images, 3, height, width], on the same device.
    """
    scale = [1 / (255 * s) for s in std]
    shift = [-m / s for m, s in zip(mean, std, strict=True)]
    as_tensor = images.new_tensor  # SYNC: on a GPU, two copies of three numbers
    scaled = images.to(torch.float32) * as_tensor(scale, dtype=torch.float32)
    shifted = scaled + as_tensor(shift, dtype=torch.float32)
    return shifted.permute(0, 3, 1, 2).to(dtype).contiguous()
