"""Plan of an image for InternVL, from its size alone."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.formats.processors.image_plans import (
    NO_INPUTS,
    ImagePlan,
    ImageRules,
    Recipe,
    Size,
)

Grid = tuple[int, int]
"""Number of columns and of rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InternVLTiles(ImageRules):
    """Rules for the tiles of a grid, row by row, then the whole image: InternVL.

    The image is stretched to the grid whose proportions are nearest to its own.
    """

    tile_size: int
    min_tiles: int
    """Fewest tiles of a grid, without the whole image."""
    max_tiles: int
    """Most tiles of a grid, without the whole image."""
    image_token: str
    start_token: str
    end_token: str
    num_image_tokens: int
    """Tokens of a tile, and of the whole image."""

    def _plan(self, size: Size) -> ImagePlan:
        """Plan as `GotOcr2ImageProcessor` and `InternVLProcessor`; every shape is accepted.

        The processor always cuts, whatever `crop_to_patches` of the image processor says.
        """
        tile = self.tile_size
        num_cols, num_rows = self._best_grid(size)
        grid_size = (num_cols * tile, num_rows * tile)
        recipes = []
        for row, col in itertools.product(range(num_rows), range(num_cols)):
            box = (col * tile, row * tile, (col + 1) * tile, (row + 1) * tile)
            recipes.append(Recipe(resizes=(grid_size,), box=box))
        if len(recipes) > 1:
            recipes.append(Recipe(resizes=((tile, tile),)))
        pixels = (self.image_token, len(recipes) * self.num_image_tokens)
        return ImagePlan(
            recipes=tuple(recipes),
            placeholder=((self.start_token, 1), pixels, (self.end_token, 1)),
        )

    def _best_grid(self, size: Size) -> Grid:
        """Return the grid with the nearest proportions: `get_optimal_tiled_canvas`.

        Of grids with equal proportions it is the largest one that is less than twice as large as
        the image.
        """
        width, height = size
        best, least_difference = (1, 1), math.inf
        for num_cols, num_rows in _grids(self.min_tiles, self.max_tiles):
            difference = abs(width / height - num_cols / num_rows)
            num_pixels = self.tile_size**2 * num_cols * num_rows
            is_as_near = difference == least_difference and width * height > 0.5 * num_pixels
            if difference < least_difference or is_as_near:
                best, least_difference = (num_cols, num_rows), difference
        return best

    def pieces(self) -> frozenset[str]:
        """Return the pieces, including the marks of start and end."""
        return frozenset({self.start_token, self.image_token, self.end_token})

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`."""
        return {
            **NO_INPUTS,
            "image_kind": "tiled",
            "image_height": self.tile_size,
            "image_width": self.tile_size,
            "num_image_tokens": self.num_image_tokens,
        }


@functools.cache
def _grids(min_tiles: int, max_tiles: int) -> tuple[Grid, ...]:
    """Return all grids of so many tiles, those with fewer tiles first, then with fewer columns."""
    grids: list[Grid] = []
    for num_cols in range(1, max_tiles + 1):
        fewest_rows = max(1, math.ceil(min_tiles / num_cols))
        most_rows = max_tiles // num_cols
        grids.extend((num_cols, num_rows) for num_rows in range(fewest_rows, most_rows + 1))
    return tuple(sorted(grids, key=lambda grid: grid[0] * grid[1]))
