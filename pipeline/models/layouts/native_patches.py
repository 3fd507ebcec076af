"""Images of varying size, cut into patches: Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.data.batch import ModelNeeds, TokenRows
from pipeline.data.gathered import ImageSize
from pipeline.models.layouts.image_layout import StoredImages, VisionInputs
from pipeline.models.layouts.pixel_scale import PixelScale, each_image


@dataclass(frozen=True, kw_only=True, slots=True)
class NativePatches:
    """`pixel_values` [num_patches, values of a patch], and `image_grid_thw`, on the host.

    Tokens are numbered in three dimensions (M-RoPE, arXiv:2409.12191, section 2.1).
    """

    scale: PixelScale
    patch_size: int
    merge_size: int
    """Side, in patches, of the square that becomes one token."""
    temporal_patch_size: int
    """Number of times an image is repeated in time."""
    image_token_id: int

    @property
    def needs(self) -> ModelNeeds:
        """Positions in three dimensions."""
        return ModelNeeds(make_positions=self.positions)

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        sizes = images.sizes.tolist()
        each = each_image(images.pixels, sizes, self.scale, dtype)
        patches = [self._cut(image) for image in each]
        grids = tuple((1, h // self.patch_size, w // self.patch_size) for h, w in sizes)
        return {"pixel_values": torch.cat(patches), "image_grid_thw": grids}

    def _cut(self, image: torch.Tensor) -> torch.Tensor:
        """Cut [height, width, 3] to [num_patches, values], grouped by token."""
        patch, merge = self.patch_size, self.merge_size
        rows, columns = (side // (patch * merge) for side in image.shape[:2])
        cut = image.view(rows, merge, patch, columns, merge, patch, 3)
        in_order = cut.permute(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3, 1, patch * patch)
        repeated = in_order.expand(-1, -1, self.temporal_patch_size, -1)
        return repeated.reshape(len(in_order), -1)

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        num_values = 3 * self.temporal_patch_size * self.patch_size**2
        return {
            "pixel_values": torch.ones(self.merge_size**2, num_values, device=device, dtype=dtype),
            "image_grid_thw": ((1, self.merge_size, self.merge_size),),
        }

    def positions(self, rows: TokenRows, image_sizes: Sequence[ImageSize]) -> np.ndarray:
        """Return int64 [3, num_rows, length]: time, height and width of each token in its sample.

        For packed rows [4, num_rows, length]: the first is the index of each token in its
        sample, which marks where samples begin. With only three, transformers would silently
        let samples see each other.
        """
        input_ids = rows.input_ids.reshape(-1)
        side = self.patch_size * self.merge_size
        sides = iter([(height // side, width // side) for height, width in image_sizes])
        places = np.empty((3, len(input_ids)), dtype=np.int64)
        for start, end in itertools.pairwise(rows.segment_bounds.tolist()):
            is_image = input_ids[start:end] == self.image_token_id
            _number(places[:, start:end], is_image, sides)
        places = places.reshape(3, *rows.input_ids.shape)
        return np.concatenate([rows.position_ids[None], places]) if rows.is_packed else places


def _number(places: np.ndarray, is_image: np.ndarray, sides: Iterator[tuple[int, int]]) -> None:
    """Fill `places` int64 [3, num_tokens] of one sample; `sides` yields the sizes of its images.

    Text increments all three. An image begins at the next text position; the text after it
    continues from its longer side.
    """
    next_place, token, num_tokens = 0, 0, len(is_image)
    while token < num_tokens:
        if is_image[token]:
            num_rows, num_columns = next(sides)
            size = num_rows * num_columns
            places[:, token : token + size] = next_place + _grid(num_rows, num_columns)
            next_place += max(num_rows, num_columns)
        else:
            after = is_image[token:]
            size = int(after.argmax()) or num_tokens - token  # no image follows
            places[:, token : token + size] = np.arange(next_place, next_place + size)
            next_place += size
        token += size


@functools.lru_cache(maxsize=1024)
def _grid(num_rows: int, num_columns: int) -> np.ndarray:
    """Return int64 [3, num_rows * num_columns]: time, row and column of an image's tokens."""
    rows, columns = np.divmod(np.arange(num_rows * num_columns), num_columns)
    return np.stack([np.zeros_like(rows), rows, columns])
