"""Interface of all layouts: from stored images to the input of a vision tower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from pipeline.data.batch import ModelNeeds

HostSizes = tuple[tuple[int, ...], ...] | tuple[int, ...]
"""Sizes or numbers of images, which a transformers model reads on the host.

Numbers instead of a tensor: a sharded root moves all tensor arguments to the device, and the
host would have to wait to read them back.
"""

VisionInputs = Mapping[str, torch.Tensor | HostSizes]
"""Keyword arguments of a vision tower, by their names in transformers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredImages:
    """Images of a batch, on the device except for their sizes."""

    pixels: torch.Tensor
    """uint8 [num_pixels, 3] of all images, concatenated."""
    sizes: torch.Tensor
    """int64 [num_images, 2] on the host: height and width of each."""
    pictures: torch.Tensor | None
    """int64 [num_pictures, 3] on the host: height and width of each picture before preprocessing,
    and number of pictures of its sample."""


class ImageLayout(Protocol):
    """Image input of a family of models; values, without weights."""

    @property
    def needs(self) -> ModelNeeds:
        """Requirements for batches."""

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Return the input of the vision tower for one image or more."""

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Return the input for one small image, whose result is discarded.

        A rank whose batch has no image runs it, so that it enters the same collectives as
        others.
        """
