"""What all layouts have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from pipeline.data.batch import ModelNeeds

HostSizes = tuple[tuple[int, ...], ...]
"""Sizes of pictures, which a model of transformers reads on the host.

Numbers and no tensor: a root that is sharded moves all tensors that it is called with to the
device, and the host would have to wait to read them back.
"""

VisionInputs = Mapping[str, torch.Tensor | HostSizes]
"""Keyword arguments of a vision tower, by the names of transformers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredImages:
    """The images of a batch, on the device but for their sizes."""

    pixels: torch.Tensor
    """uint8 [num_pixels, 3] of all images, one after the other."""
    sizes: torch.Tensor
    """int64 [num_images, 2] on the host: height and width of each."""
    original_sizes: torch.Tensor | None
    """int64 [num_pictures, 2] on the host, of each picture before it was preprocessed."""


class ImageLayout(Protocol):
    """How a family of models takes images; values, without weights."""

    @property
    def needs(self) -> ModelNeeds:
        """What batches must have for it."""

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """What the vision tower takes for one image or more."""

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """The same for one small image, of which nothing is kept.

        A rank whose batch has no image runs it, so that it enters the same collectives as others.
        """
