"""Grids and token counts of LLaVA-OneVision against transformers' own arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_jobs.formats.processors.anyres_tiles import LlavaOnevisionTiles
from slurm_jobs.formats.processors.image_plans import UnfitImageError

SIDE = st.integers(1, 12_000)
PINPOINTS = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
BROWN = (127, 100, 50)


def counter(aspect_ratio: str) -> Any:
    """Token counts of the published processor, without a tokenizer."""
    from transformers import LlavaOnevisionImageProcessorPil, LlavaOnevisionProcessor

    class Counter:
        image_processor = LlavaOnevisionImageProcessorPil(image_grid_pinpoints=PINPOINTS)
        num_image_tokens = 729
        vision_aspect_ratio = aspect_ratio
        count = LlavaOnevisionProcessor._get_number_of_features
        _get_unpadded_features = LlavaOnevisionProcessor._get_unpadded_features

    return Counter()


def tiles(max_tiles: int, *, drops_first_token: bool = False) -> LlavaOnevisionTiles:
    return LlavaOnevisionTiles(
        tile_size=384,
        grids=tuple((width, height) for height, width in PINPOINTS),
        num_image_tokens=729,
        max_tiles=max_tiles,
        drops_first_token=drops_first_token,
        background=BROWN,
        image_token="<image>",
    )


@pytest.mark.parametrize("max_tiles", [4, 9, 12])
def test_grid_and_tokens_are_those_of_transformers(max_tiles: int) -> None:
    from transformers.image_processing_utils import select_best_resolution

    images, processor = tiles(max_tiles), counter(f"anyres_max_{max_tiles}")

    @settings(derandomize=True, deadline=None, max_examples=300)
    @given(size=st.tuples(SIDE, SIDE))
    @example(size=(12_000, 1))
    @example(size=(384, 384))
    @example(size=(2304, 2304))  # 36 tiles, of which the model keeps the tokens of 9
    def check(size: tuple[int, int]) -> None:
        width, height = size
        best_height, best_width = select_best_resolution((height, width), PINPOINTS)
        plan = images.plan(size)
        assert len(plan.recipes) == 1 + best_height // 384 * (best_width // 384)
        assert {recipe.size for recipe in plan.recipes} == {(384, 384)}
        assert plan.placeholder == (("<image>", processor.count(height, width, 384, 384)),)

    check()


@pytest.mark.parametrize(("drops", "num_tokens"), [(False, 730), (True, 729)])
def test_an_image_that_is_one_of_several_is_one_padded_square(drops: bool, num_tokens: int) -> None:
    plan = tiles(9, drops_first_token=drops).plan((4000, 30), num_images=2)
    (recipe,) = plan.recipes
    assert (recipe.resizes, recipe.box, recipe.square) == (((384, 384),), None, BROWN)
    assert plan.placeholder == (("<image>", num_tokens),)


def test_an_image_whose_tokens_cannot_be_reduced_is_unfit() -> None:
    grids = ((384 * 40, 384), (384, 384))
    wide = LlavaOnevisionTiles(
        tile_size=384,
        grids=grids,
        num_image_tokens=729,
        max_tiles=1,
        drops_first_token=False,
        background=BROWN,
        image_token="<image>",
    )
    assert wide.plan((384, 384)).num_pixels == 2 * 384**2
    with pytest.raises(UnfitImageError, match="would reduce its tiles to no token"):
        wide.plan((12_000, 1))
