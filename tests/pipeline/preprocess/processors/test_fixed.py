"""One size for all: sizes before the cut against transformers' own arithmetic."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_jobs.formats.processors.image_plans import FixedImages

SIDE = st.integers(1, 12_000)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(size=st.tuples(SIDE, SIDE), edge=st.integers(24, 400))
def test_size_before_the_middle_is_cut_out_is_that_of_transformers(
    size: tuple[int, int], edge: int
) -> None:
    from transformers.image_transforms import get_resize_output_image_size

    images = FixedImages(
        height=24, width=24, shortest_edge=edge, image_token="<image>", num_image_tokens=4
    )
    image = np.broadcast_to(np.uint8(0), (3, size[1], size[0]))
    height, width = get_resize_output_image_size(
        image, edge, default_to_square=False, input_data_format="channels_first"
    )
    (recipe,) = images.plan(size).recipes
    assert recipe.resizes == ((width, height),)
    left, top, right, bottom = recipe.box
    assert (left, top) == ((width - 24) // 2, (height - 24) // 2)
    assert (right - left, bottom - top) == (24, 24)
    assert right <= width
    assert bottom <= height


def test_both_sides_are_resized_where_no_shorter_one_is_named() -> None:
    images = FixedImages(
        height=20, width=30, shortest_edge=None, image_token="<image>", num_image_tokens=4
    )
    (recipe,) = images.plan((7, 700)).recipes
    assert (recipe.resizes, recipe.box, recipe.size) == (((30, 20),), None, (30, 20))
