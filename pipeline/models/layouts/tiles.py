"""Layouts of images and tiles that all have one size."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipeline.data.batch import ModelNeeds
from pipeline.models.layouts.image_layout import StoredImages, VisionInputs
from pipeline.models.layouts.pixel_scale import PixelScale, stack_images


@dataclass(frozen=True, kw_only=True, slots=True)
class AnyresTiles:
    """`pixel_values` [num_tiles, 3, height, width], and `image_sizes` of original images.

    LLaVA-NeXT: the whole image and tiles of it, matched by the image's size. LLaVA-OneVision: a
    picture that is one of several in its sample is one tile, which `batch_num_images` says.
    """

    scale: PixelScale
    size: tuple[int, int]
    """Height and width of every tile."""
    smallest_grid: tuple[int, int]
    """Height and width of the grid with the fewest tiles, of the model's `image_grid_pinpoints`."""
    counts_pictures: bool = False
    """True if the model needs `batch_num_images`, the number of pictures of each sample."""

    @property
    def needs(self) -> ModelNeeds:
        """Sizes of the original images, from which the model assigns tiles to images."""
        return ModelNeeds(pictures=True)

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        assert images.pictures is not None
        tiles = stack_images(images.pixels, self.size, self.scale, dtype)
        pictures = images.pictures.tolist()
        sizes = tuple((height, width) for height, width, _ in pictures)
        if not self.counts_pictures:
            return {"pixel_values": tiles, "image_sizes": sizes}
        numbers, first = [], 0
        while first < len(pictures):
            numbers.append(pictures[first][2])
            first += pictures[first][2]  # to the first picture of the next sample
        return {"pixel_values": tiles, "image_sizes": sizes, "batch_num_images": tuple(numbers)}

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        height, width = self.size
        num_tiles = (self.smallest_grid[0] // height) * (self.smallest_grid[1] // width)
        tiles = torch.ones(1 + num_tiles, 3, height, width, device=device, dtype=dtype)
        if self.counts_pictures:
            sizes = (self.smallest_grid,)
            return {"pixel_values": tiles, "image_sizes": sizes, "batch_num_images": (1,)}
        return {"pixel_values": tiles, "image_sizes": (self.smallest_grid,)}


@dataclass(frozen=True, kw_only=True, slots=True)
class TilesInOneRow:
    """`pixel_values` [1, num_tiles, 3, height, width], whatever the number of rows of text.

    Idefics3 and SmolVLM pad rows that have fewer tiles than others with black ones, and drop tiles
    that are 0 throughout. A single row needs no padding, and so no mask of pixels.
    """

    scale: PixelScale
    size: tuple[int, int]
    """Height and width of every tile."""

    @property
    def needs(self) -> ModelNeeds:
        """No requirements."""
        return ModelNeeds()

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        return {"pixel_values": stack_images(images.pixels, self.size, self.scale, dtype)[None]}

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`; of ones, because zeros would be dropped."""
        return {"pixel_values": torch.ones(1, 1, 3, *self.size, device=device, dtype=dtype)}


@dataclass(frozen=True, kw_only=True, slots=True)
class StackedImages:
    """`pixel_values` [num_images, 3, height, width]: LLaVA 1.5 and the built-in small model.

    The images of InternVL are tiles, all with one number of tokens.
    """

    scale: PixelScale
    size: tuple[int, int]
    """Height and width of every image."""

    @property
    def needs(self) -> ModelNeeds:
        """No requirements."""
        return ModelNeeds()

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        return {"pixel_values": stack_images(images.pixels, self.size, self.scale, dtype)}

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        return {"pixel_values": torch.ones(1, 3, *self.size, device=device, dtype=dtype)}
