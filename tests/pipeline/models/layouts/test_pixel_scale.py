"""Pixels as a vision tower takes them."""

import torch

from pipeline.models.layouts.pixel_scale import PixelScale, stack_images


def test_pixels_are_scaled_shifted_and_channels_first():
    images = torch.randint(0, 256, (2, 5, 4, 3), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 1.0)
    expected = ((images / 255 - torch.tensor(mean)) / torch.tensor(std)).permute(0, 3, 1, 2)
    scale = PixelScale(mean=mean, std=std)
    found = stack_images(images.reshape(-1, 3), (5, 4), scale, torch.float32)
    assert found.shape == (2, 3, 5, 4)
    torch.testing.assert_close(found, expected)
