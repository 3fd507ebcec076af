"""Tiles of Idefics3 and SmolVLM against transformers' own arithmetic, at their real sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_jobs.formats.processors.image_plans import IdeficsTiles

SIDE = st.integers(1, 12_000)
SMOLVLM, IDEFICS3, NO_MULTIPLE = (2048, 512), (4 * 364, 364), (1000, 384)
"""Longest edge of the image, and of a tile."""


def tiles(longest_edge: int, tile_size: int, *, split: bool = True) -> IdeficsTiles:
    return IdeficsTiles(
        longest_edge=longest_edge,
        tile_size=tile_size,
        split=split,
        image_token="<image>",
        fake_token="<fake_token_around_image>",
        global_token="<global-img>",
        num_image_tokens=64,
    )


@pytest.fixture(scope="module")
def shapes_only() -> type:
    """The real processor, whose resizes give arrays of the right shape and no memory behind."""
    from transformers import SmolVLMImageProcessorPil
    from transformers.image_processing_backends import PilBackend

    class ShapesOnly(SmolVLMImageProcessorPil):
        sizes: list[tuple[int, int]]

    def resize(self: ShapesOnly, _image: np.ndarray, size: Any, **_options: object) -> np.ndarray:
        self.sizes.append((size.width, size.height))
        return np.broadcast_to(np.uint8(0), (3, size.height, size.width))

    patch = pytest.MonkeyPatch()
    patch.setattr(PilBackend, "resize", resize)
    yield ShapesOnly
    patch.undo()


def test_sizes_rows_and_columns_are_those_of_transformers(shapes_only: type) -> None:
    @settings(derandomize=True, deadline=None, max_examples=300)
    @given(
        size=st.tuples(SIDE, SIDE), edges=st.sampled_from([SMOLVLM, IDEFICS3, NO_MULTIPLE, (9, 1)])
    )
    @example(size=(12_000, 1), edges=SMOLVLM)
    @example(size=(1, 12_000), edges=SMOLVLM)
    @example(size=(512, 512), edges=(512, 512))  # of one tile
    @example(size=(9000, 5000), edges=(5000, 512))  # over the most that is allowed
    def check(size: tuple[int, int], edges: tuple[int, int]) -> None:
        processor = shapes_only(
            size={"longest_edge": edges[0]}, max_image_size={"longest_edge": edges[1]}
        )
        processor.sizes = []
        image = np.broadcast_to(np.uint8(0), (3, size[1], size[0]))
        image = processor.resize(image, processor.size)
        image = processor.resize_for_vision_encoder(image, edges[1])
        frames, rows, cols = processor.split_images(image, processor.max_image_size)
        plan = tiles(*edges).plan(size)
        assert plan.recipes[-1].resizes == tuple(processor.sizes)
        assert [recipe.size for recipe in plan.recipes] == [
            (frame.shape[2], frame.shape[1]) for frame in frames
        ]
        assert plan.text == expected_text(rows, cols)

    check()


def expected_text(rows: int, cols: int) -> str:
    from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

    return get_image_prompt_string(
        rows, cols, 64, "<fake_token_around_image>", "<image>", "<global-img>"
    )


def test_image_that_is_not_split_is_seen_as_a_whole() -> None:
    plan = tiles(*SMOLVLM, split=False).plan((3000, 1000))
    assert [recipe.resizes for recipe in plan.recipes] == [((2048, 682), (512, 512))]
    assert plan.text == expected_text(0, 0)


@settings(derandomize=True, deadline=None)
@given(st.tuples(SIDE, SIDE))
def test_pieces_name_all_that_a_placeholder_may_have(size: tuple[int, int]) -> None:
    for edges in (SMOLVLM, IDEFICS3, NO_MULTIPLE):
        images = tiles(*edges)
        assert {piece for piece, _ in images.plan(size).placeholder} <= images.pieces()
