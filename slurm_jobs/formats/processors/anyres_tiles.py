"""Plans of images that are cut into the best of several grids ("anyres")."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.formats.processors.image_plans import (
    NO_INPUTS,
    Colour,
    ImagePlan,
    ImageRules,
    Recipe,
    Size,
    UnfitImageError,
)

_LEAST_REDUCTION = 1.1
"""Factor up to which LLaVA-OneVision leaves the tokens of a larger grid as they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LlavaNextTiles(ImageRules):
    """Rules for the whole image, then tiles of the best of several grids: LLaVA-NeXT ("anyres")."""

    tile_size: int
    grids: tuple[Size, ...]
    """Width and height of the pictures from which tiles may be cut: `image_grid_pinpoints`."""
    patch_size: int
    """Patch size of the vision tower, for the number of tokens."""
    num_additional_tokens: int
    drops_first_token: bool
    """True for `vision_feature_select_strategy: default`."""
    image_token: str

    def _plan(self, size: Size) -> ImagePlan:
        """Plan as `LlavaNextImageProcessor` and `LlavaNextProcessor`; every shape is accepted."""
        grid = _best_grid(size, self.grids)
        return ImagePlan(
            recipes=_whole_and_tiles(size, grid, self.tile_size),
            placeholder=((self.image_token, self._count_tokens(size, grid)),),
        )

    def _count_tokens(self, size: Size, grid: Size) -> int:
        """Count the tiles' tokens without padding, plus one per row: `_get_number_of_features`."""
        side = self.tile_size // self.patch_size
        rows, cols = _tokens_without_padding(size, grid, self.tile_size, side)
        num_tokens = cols * rows + rows + side * side + self.num_additional_tokens
        return num_tokens - self.drops_first_token

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`; the number of an image's tokens depends on its size."""
        return _inputs_of_tiles(self.tile_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class LlavaOnevisionTiles(ImageRules):
    """Rules for an image that is alone in its row, and for one of several: LLaVA-OneVision."""

    tile_size: int
    grids: tuple[Size, ...]
    """Width and height of the pictures from which tiles may be cut: `image_grid_pinpoints`."""
    num_image_tokens: int
    """Tokens of a tile."""
    max_tiles: int
    """The model reduces the tokens of larger grids to about as many as this number of tiles has:
    the number in `vision_aspect_ratio`."""
    drops_first_token: bool
    """True for `vision_feature_select_strategy: default`."""
    background: Colour
    """Colour on both sides of an image that is one of several."""
    image_token: str

    def _plan(self, size: Size) -> ImagePlan:
        """Plan as `LlavaOnevisionImageProcessor` and `LlavaOnevisionProcessor`."""
        grid = _best_grid(size, self.grids)
        return ImagePlan(
            recipes=_whole_and_tiles(size, grid, self.tile_size),
            placeholder=((self.image_token, self._count_tokens(size, grid)),),
        )

    def _plan_of_several(self, size: Size) -> ImagePlan:  # noqa: ARG002 - all become one square
        """Plan one square, whose tokens end with one for the end of a row."""
        tile = (self.tile_size, self.tile_size)
        num_tokens = self.num_image_tokens + 1 - self.drops_first_token
        return ImagePlan(
            recipes=(Recipe(resizes=(tile,), square=self.background),),
            placeholder=((self.image_token, num_tokens),),
        )

    def _count_tokens(self, size: Size, grid: Size) -> int:
        """Count the tokens of whole and tiles, plus one per row: `_get_number_of_features`.

        Raises:
            UnfitImageError: the model cannot reduce the tokens of an image that is so thin.
        """
        side = math.isqrt(self.num_image_tokens)
        rows, cols = _tokens_without_padding(size, grid, self.tile_size, side)
        ratio = math.sqrt(rows * cols / (self.max_tiles * side**2))
        if ratio > _LEAST_REDUCTION:
            rows, cols = int(rows // ratio), int(cols // ratio)
            if not rows * cols:
                message = "it is so thin that the model would reduce its tiles to no token"
                raise UnfitImageError(message)
        return rows * cols + rows + self.num_image_tokens - self.drops_first_token

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`; the number of an image's tokens depends on its size."""
        return _inputs_of_tiles(self.tile_size)


def _inputs_of_tiles(tile_size: int) -> Mapping[str, Any]:
    return {
        **NO_INPUTS,
        "image_kind": "tiled",
        "image_height": tile_size,
        "image_width": tile_size,
    }


def _best_grid(size: Size, grids: Sequence[Size]) -> Size:
    """Return the grid that keeps most pixels, then wastes fewest: `select_best_resolution`."""
    best, most_kept, least_wasted = grids[0], 0, math.inf
    for grid in grids:
        scale = min(grid[0] / size[0], grid[1] / size[1])
        scaled = int(size[0] * scale) * int(size[1] * scale)
        num_pixels = min(scaled, size[0] * size[1])
        wasted = grid[0] * grid[1] - num_pixels
        if num_pixels > most_kept or (num_pixels == most_kept and wasted < least_wasted):
            best, most_kept, least_wasted = grid, num_pixels, wasted
    return best


def _whole_and_tiles(size: Size, grid: Size, tile: int) -> tuple[Recipe, ...]:
    """Return the recipes of the whole image, then of the tiles of a grid, row by row.

    The image is fitted into the grid, with black on both sides. The odd pixel of it is at the
    end, as in `_get_padding_size`.
    """
    fitted = _fit_into(size, grid)
    left, top = ((outer - inner) // 2 for outer, inner in zip(grid, fitted, strict=True))
    recipes = [Recipe(resizes=((tile, tile),))]
    for y, x in itertools.product(range(0, grid[1], tile), range(0, grid[0], tile)):
        box = (x - left, y - top, x - left + tile, y - top + tile)
        recipes.append(Recipe(resizes=(fitted,), box=box))
    return tuple(recipes)


def _tokens_without_padding(size: Size, grid: Size, tile: int, side: int) -> tuple[int, int]:
    """Return rows and columns of the tokens of a grid's tiles without the image's padding.

    `side` is the number of tokens along a side of a tile. As in `_get_unpadded_features`.
    """
    cols, rows = (side * (length // tile) for length in grid)
    width, height = size
    if width / height > cols / rows:
        rows -= (rows - int(round(height * (cols / width), 7))) // 2 * 2
    else:
        cols -= (cols - int(round(width * (rows / height), 7))) // 2 * 2
    return rows, cols


def _fit_into(size: Size, grid: Size) -> Size:
    """Return the largest size of these proportions in the grid: `get_patch_output_size`."""
    scale_w, scale_h = grid[0] / size[0], grid[1] / size[1]
    if scale_w < scale_h:
        return grid[0], min(math.ceil(size[1] * scale_w), grid[1])
    return min(math.ceil(size[0] * scale_h), grid[0]), grid[1]
