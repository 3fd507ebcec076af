"""Stored bytes to the input of a vision tower, on the device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

_PIXEL_MAX = 255


_NUM_DIGITS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelScale:
    """Scales bytes to 0..1, subtracts a mean and divides by a deviation.

    One byte per channel is copied to the device, a quarter of the size of floats.
    """

    mean: tuple[float, ...]
    """Mean of each channel, after scaling to 0..1."""
    std: tuple[float, ...]
    """Deviation of each channel, after scaling to 0..1."""

    @classmethod
    def of_processor(
        cls, mean: Sequence[float], std: Sequence[float], rescale_factor: float
    ) -> PixelScale:
        """Return the scale of a processor that first multiplies bytes by `rescale_factor`."""
        # (pixel * rescale - mean) / std, written for pixels scaled by 1/255.
        factor = _PIXEL_MAX * rescale_factor
        return cls(mean=tuple(m / factor for m in mean), std=tuple(s / factor for s in std))

    def rounded(self) -> PixelScale:
        """Round, so that equal scales compare equal however they were computed."""
        mean, std = (tuple(round(v, _NUM_DIGITS) for v in vs) for vs in (self.mean, self.std))
        return PixelScale(mean=mean, std=std)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Scale uint8 [.., 3] to float32 of the same shape, on the same device."""
        scale, shift = _factors(self.mean, self.std, pixels.device)
        return pixels.to(torch.float32) * scale + shift


@functools.lru_cache(maxsize=16)
def _factors(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factor and summand of bytes: float32 [3] on the device."""
    scale = [1 / (255 * s) for s in std]
    shift = [-m / s for m, s in zip(mean, std, strict=True)]
    # SYNC: on a GPU two copies of three numbers, once per process.
    return torch.tensor(scale, device=device), torch.tensor(shift, device=device)


def each_image(
    pixels: torch.Tensor, sizes: Sequence[Sequence[int]], scale: PixelScale, dtype: torch.dtype
) -> list[torch.Tensor]:
    """Return images of varying size as `dtype` [height, width, 3] each.

    Args:
        pixels: uint8 [num_pixels, 3], all images concatenated.
        sizes: Height and width of each image.
        scale: Maps bytes to floats.
        dtype: Dtype of the result.
    """
    scaled = scale(pixels).to(dtype)
    each = scaled.split([height * width for height, width in sizes])
    return [image.view(*size, 3) for image, size in zip(each, sizes, strict=True)]


def stack_images(
    pixels: torch.Tensor, size: Sequence[int], scale: PixelScale, dtype: torch.dtype
) -> torch.Tensor:
    """Return images of one size as the input of a vision tower of that size.

    Args:
        pixels: uint8 [num_pixels, 3], all images concatenated.
        size: Height and width of every image.
        scale: Maps bytes to floats.
        dtype: Dtype of the result.

    Returns:
        `dtype` [num_images, 3, height, width].
    """
    stacked = scale(pixels).view(-1, *size, 3)
    return stacked.permute(0, 3, 1, 2).to(dtype).contiguous()
