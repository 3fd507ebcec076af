"""Images cut into square tiles, together with the whole image: Idefics3 and SmolVLM."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.processors.plan import ImagePlan, Recipe, Size

MAX_LONGEST_EDGE = 4096
"""`MAX_IMAGE_SIZE` of transformers' `image_processing_pil_idefics3`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdeficsTiles:
    """Rules for tiles row by row, then the whole image at the size of a tile."""

    longest_edge: int
    """Longer side to which every image is first resized, smaller ones too."""
    tile_size: int
    """Side of a tile in pixels."""
    split: bool
    """False for the whole image alone."""
    image_token: str
    fake_token: str
    """Token before and after the tokens of each tile."""
    global_token: str
    """Token before the whole image."""
    num_image_tokens: int
    """Number of tokens of each tile."""

    @property
    def wrapping(self) -> None:
        """Return None: the placeholder, not the template, contains the marks around an image."""
        return

    def plan(self, size: Size) -> ImagePlan:
        """Plan as `Idefics3ImageProcessor` and `Idefics3Processor`, which SmolVLM's copy."""
        fitted = _limit(_stretch(size, self.longest_edge))
        tile = (self.tile_size, self.tile_size)
        whole = _round_up(fitted, self.tile_size) if self.split else tile
        if whole == tile:
            return ImagePlan(
                recipes=(Recipe(resizes=(fitted, tile)),), placeholder=self._placeholder(0, 0)
            )
        num_cols, num_rows = (side // self.tile_size for side in whole)
        tiles = tuple(
            Recipe(resizes=(fitted, whole), box=self._box(row, col))
            for row in range(num_rows)
            for col in range(num_cols)
        )
        return ImagePlan(
            recipes=(*tiles, Recipe(resizes=(fitted, whole, tile))),
            placeholder=self._placeholder(num_rows, num_cols),
        )

    def _box(self, row: int, col: int) -> tuple[int, int, int, int]:
        left, top = col * self.tile_size, row * self.tile_size
        return left, top, left + self.tile_size, top + self.tile_size

    def _placeholder(self, num_rows: int, num_cols: int) -> tuple[tuple[str, int], ...]:
        pixels = (self.image_token, self.num_image_tokens)
        whole = ((self.fake_token, 1), (self.global_token, 1), pixels, (self.fake_token, 1))
        if not num_rows:
            return whole
        pieces: list[tuple[str, int]] = []
        for row in range(num_rows):
            for col in range(num_cols):
                pieces += [(self.fake_token, 1), (_place(row, col), 1), pixels]
            pieces.append(("\n" if row < num_rows - 1 else "\n\n", 1))
        return (*pieces, *whole)

    def pieces(self) -> frozenset[str]:
        """Return the pieces, including the marks of all tile positions."""
        most = math.ceil(min(self.longest_edge, MAX_LONGEST_EDGE) / self.tile_size)
        places = {_place(row, col) for row in range(most) for col in range(most)}
        names = {self.image_token, self.fake_token, self.global_token}
        return frozenset({"\n", "\n\n"} | places | names)

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`."""
        return {
            "image_kind": "tiled",
            "image_height": self.tile_size,
            "image_width": self.tile_size,
            "num_image_tokens": self.num_image_tokens,
            "patch_size": None,
            "merge_size": None,
            "temporal_patch_size": None,
        }


def _place(row: int, col: int) -> str:
    return f"<row_{row + 1}_col_{col + 1}>"


def _stretch(size: Size, longest_edge: int) -> Size:
    """Set the longer side and make the other even: `_resize_output_size_rescale_to_max_len`."""
    width, height = size
    ratio = width / height
    if width >= height:
        width, height = longest_edge, int(longest_edge / ratio)
        height += height % 2
    else:
        width, height = int(longest_edge * ratio), longest_edge
        width += width % 2
    return max(width, 1), max(height, 1)


def _limit(size: Size) -> Size:
    """Limit both sides to `MAX_LONGEST_EDGE`: `_resize_output_size_scale_below_upper_bound`."""
    width, height = size
    ratio = width / height
    if width >= height and width > MAX_LONGEST_EDGE:
        width, height = MAX_LONGEST_EDGE, int(MAX_LONGEST_EDGE / ratio)
    elif height > width and height > MAX_LONGEST_EDGE:
        width, height = int(MAX_LONGEST_EDGE * ratio), MAX_LONGEST_EDGE
    return max(width, 1), max(height, 1)


def _round_up(size: Size, tile_size: int) -> Size:
    """Round both sides up to whole tiles: `resize_for_vision_encoder`."""
    width, height = size
    ratio = width / height
    if width >= height:
        width = math.ceil(width / tile_size) * tile_size
        height = math.ceil(int(width / ratio) / tile_size) * tile_size
    else:
        height = math.ceil(height / tile_size) * tile_size
        width = math.ceil(int(height * ratio) / tile_size) * tile_size
    return width, height
