"""Whole image, then tiles of it in the best of several grids: LLaVA-NeXT ("anyres")."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.processors.plan import ImagePlan, Recipe, Size


@dataclass(frozen=True, kw_only=True, slots=True)
class LlavaNextTiles:
    """Rules for the whole image at the size of a tile, then the tiles row by row."""

    tile_size: int
    """Side of a tile in pixels."""
    grids: tuple[Size, ...]
    """Width and height of the pictures from which tiles may be cut: `image_grid_pinpoints`."""
    patch_size: int
    """Patch size of the vision tower, for the number of tokens."""
    num_additional_tokens: int
    drops_first_token: bool
    """True for `vision_feature_select_strategy: default`."""
    image_token: str

    @property
    def wrapping(self) -> None:
        """Return None: no tokens surround an image."""
        return

    def plan(self, size: Size) -> ImagePlan:
        """Plan as `LlavaNextImageProcessor` and `LlavaNextProcessor`; every shape is accepted."""
        grid = self._best_grid(size)
        fitted = _fit_into(size, grid)
        # Black on both sides, the odd pixel at the end, as in `_get_padding_size`.
        left, top = ((outer - inner) // 2 for outer, inner in zip(grid, fitted, strict=True))
        tile = self.tile_size
        starts = itertools.product(range(0, grid[1], tile), range(0, grid[0], tile))
        tiles = (
            Recipe(resizes=(fitted,), box=(x - left, y - top, x - left + tile, y - top + tile))
            for y, x in starts
        )
        return ImagePlan(
            recipes=(Recipe(resizes=((tile, tile),)), *tiles),
            placeholder=((self.image_token, self._count_tokens(size, grid)),),
        )

    def _best_grid(self, size: Size) -> Size:
        """Return the grid that keeps most pixels, then wastes fewest: `select_best_resolution`."""
        best, most_kept, least_wasted = self.grids[0], 0, math.inf
        for grid in self.grids:
            scale = min(grid[0] / size[0], grid[1] / size[1])
            scaled = int(size[0] * scale) * int(size[1] * scale)
            kept = min(scaled, size[0] * size[1])
            wasted = grid[0] * grid[1] - kept
            if kept > most_kept or (kept == most_kept and wasted < least_wasted):
                best, most_kept, least_wasted = grid, kept, wasted
        return best

    def _count_tokens(self, size: Size, grid: Size) -> int:
        """Count the tiles' tokens without padding, plus one per row: `_get_number_of_features`."""
        side = self.tile_size // self.patch_size
        cols, rows = (side * (length // self.tile_size) for length in grid)
        width, height = size
        if width / height > cols / rows:
            rows -= (rows - int(round(height * (cols / width), 7))) // 2 * 2
        else:
            cols -= (cols - int(round(width * (rows / height), 7))) // 2 * 2
        num_tokens = cols * rows + rows + side * side + self.num_additional_tokens
        return num_tokens - self.drops_first_token

    def pieces(self) -> frozenset[str]:
        """Return the image token alone."""
        return frozenset({self.image_token})

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`; the number of an image's tokens depends on its size."""
        return {
            "image_kind": "tiled",
            "image_height": self.tile_size,
            "image_width": self.tile_size,
            "num_image_tokens": None,
            "patch_size": None,
            "merge_size": None,
            "temporal_patch_size": None,
        }


def _fit_into(size: Size, grid: Size) -> Size:
    """Return the largest size of these proportions in the grid: `get_patch_output_size`."""
    scale_w, scale_h = grid[0] / size[0], grid[1] / size[1]
    if scale_w < scale_h:
        return grid[0], min(math.ceil(size[1] * scale_w), grid[1])
    return min(math.ceil(size[0] * scale_h), grid[0]), grid[1]
