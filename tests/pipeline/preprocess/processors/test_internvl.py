"""Grids of InternVL against transformers' own arithmetic, at their real sizes."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_jobs.formats.processors.internvl_tiles import InternVLTiles

SIDE = st.integers(1, 12_000)
TILE = 448


def tiles(min_tiles: int, max_tiles: int) -> InternVLTiles:
    return InternVLTiles(
        tile_size=TILE,
        min_tiles=min_tiles,
        max_tiles=max_tiles,
        image_token="<IMG_CONTEXT>",
        start_token="<img>",
        end_token="</img>",
        num_image_tokens=256,
    )


@settings(derandomize=True, deadline=None, max_examples=500)
@given(size=st.tuples(SIDE, SIDE), limits=st.sampled_from([(1, 12), (1, 1), (2, 6), (3, 40)]))
@example(size=(448, 448), limits=(1, 12))  # one tile, and no whole image next to it
@example(size=(1344, 1344), limits=(1, 12))  # 3 x 3 tiles are as near as one is
@example(size=(634, 634), limits=(1, 12))  # 2 x 2 tiles are twice as large as it
@example(size=(12_000, 1), limits=(1, 12))
def test_grids_are_those_of_transformers(size: tuple[int, int], limits: tuple[int, int]) -> None:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

    width, height = size
    expected = get_optimal_tiled_canvas((height, width), (TILE, TILE), *limits)
    plan = tiles(*limits).plan(size)
    num_cols, num_rows = expected
    assert plan.recipes[0].resizes == ((num_cols * TILE, num_rows * TILE),)
    assert {recipe.size for recipe in plan.recipes} == {(TILE, TILE)}
    num_tiles = num_cols * num_rows
    assert len(plan.recipes) == num_tiles + (num_tiles > 1)
    assert plan.text == "<img>" + "<IMG_CONTEXT>" * 256 * len(plan.recipes) + "</img>"
