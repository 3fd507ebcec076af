"""An image is cut into square tiles, and seen as a whole besides: Idefics3 and SmolVLM."""

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
    """Tiles row by row, then the whole image at the size of one."""

    longest_edge: int
    """Every image is first resized so that its longer side is this, smaller ones too."""
    tile_size: int
    """Side of a tile in pixels."""
    split: bool
    """False: the whole image alone."""
    image_token: str
    fake_token: str
    """Stands before and after each tile's tokens."""
    global_token: str
    """Says that the whole image follows."""
    num_image_tokens: int
    """Of each tile."""

    @property
    def wrapping(self) -> None:
        """The template prints nothing around an image; the placeholder has its own marks."""
        return

    def plan(self, size: Size) -> ImagePlan:
        """As `Idefics3ImageProcessor` and `Idefics3Processor`, of which SmolVLM's are copies."""
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
        """The marks of all places that a tile can have, too."""
        most = math.ceil(min(self.longest_edge, MAX_LONGEST_EDGE) / self.tile_size)
        places = {_place(row, col) for row in range(most) for col in range(most)}
        names = {self.image_token, self.fake_token, self.global_token}
        return frozenset({"\n", "\n\n"} | places | names)

    def model_inputs(self) -> Mapping[str, Any]:
        """Of `DatasetInfo`."""
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
    """`_resize_output_size_rescale_to_max_len`: the longer side as told, the other one even."""
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
    """`_resize_output_size_scale_below_upper_bound`: no side over `MAX_LONGEST_EDGE`."""
    width, height = size
    ratio = width / height
    if width >= height and width > MAX_LONGEST_EDGE:
        width, height = MAX_LONGEST_EDGE, int(MAX_LONGEST_EDGE / ratio)
    elif height > width and height > MAX_LONGEST_EDGE:
        width, height = int(MAX_LONGEST_EDGE * ratio), MAX_LONGEST_EDGE
    return max(width, 1), max(height, 1)


def _round_up(size: Size, tile_size: int) -> Size:
    """`resize_for_vision_encoder`: both sides to whole tiles."""
    width, height = size
    ratio = width / height
    if width >= height:
        width = math.ceil(width / tile_size) * tile_size
        height = math.ceil(int(width / ratio) / tile_size) * tile_size
    else:
        height = math.ceil(height / tile_size) * tile_size
        width = math.ceil(int(height * ratio) / tile_size) * tile_size
    return width, height
