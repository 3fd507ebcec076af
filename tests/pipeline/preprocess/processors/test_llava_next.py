"""Grids and token counts of LLaVA-NeXT against transformers' own arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_jobs.formats.processors.anyres_tiles import LlavaNextTiles

SIDE = st.integers(1, 12_000)
PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


@pytest.fixture(scope="module")
def processor() -> Any:
    """Image processor and token counts of llava-v1.6, without a tokenizer."""
    from transformers import LlavaNextImageProcessorPil, LlavaNextProcessor

    class Counter:
        image_processor = LlavaNextImageProcessorPil(image_grid_pinpoints=PINPOINTS)
        patch_size = 14
        num_additional_image_tokens = 1
        count = LlavaNextProcessor._get_number_of_features
        _get_unpadded_features = LlavaNextProcessor._get_unpadded_features

    return Counter()


def test_grid_and_tokens_are_those_of_transformers(processor: Any) -> None:
    from transformers.image_processing_utils import get_patch_output_size, select_best_resolution

    images = LlavaNextTiles(
        tile_size=336,
        grids=tuple((width, height) for height, width in PINPOINTS),
        patch_size=14,
        num_additional_tokens=1,
        drops_first_token=False,
        image_token="<image>",
    )

    @settings(derandomize=True, deadline=None, max_examples=300)
    @given(size=st.tuples(SIDE, SIDE))
    @example(size=(12_000, 1))  # nothing of it is left in any grid
    @example(size=(336, 336))
    def check(size: tuple[int, int]) -> None:
        width, height = size
        best = select_best_resolution((height, width), PINPOINTS)
        image = np.broadcast_to(np.uint8(0), (3, height, width))
        fitted_height, fitted_width = get_patch_output_size(image, best, "channels_first")
        whole, *tiles = images.plan(size).recipes
        assert whole.resizes == ((336, 336),)
        assert {tile.resizes for tile in tiles} == {((fitted_width, fitted_height),)}
        assert {tile.size for tile in tiles} == {(336, 336)}
        assert len(tiles) == best[0] // 336 * (best[1] // 336)
        num_tokens = processor.count(height, width, 336, 336)
        assert images.plan(size).placeholder == (("<image>", num_tokens),)

    check()
