"""Sizes of the Qwen2-VL family against transformers' own arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_jobs.formats.processors.image_plans import NativeImages, UnfitImageError, smart_resize

QWEN2_5_VL = {"factor": 28, "min_pixels": 3136, "max_pixels": 12_845_056}
QWEN3_VL = {"factor": 32, "min_pixels": 65_536, "max_pixels": 16_777_216}
SIDE = st.integers(1, 30_000)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(size=st.tuples(SIDE, SIDE), limits=st.sampled_from([QWEN2_5_VL, QWEN3_VL]))
@example(size=(14, 42), limits=QWEN2_5_VL)  # halves, which Python rounds to even
@example(size=(20_000, 100), limits=QWEN2_5_VL)  # 200 : 1
@example(size=(20_001, 100), limits=QWEN2_5_VL)
def test_size_is_that_of_transformers(size: tuple[int, int], limits: dict[str, int]) -> None:
    from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as qwen2_vl

    try:
        height, width = qwen2_vl.smart_resize(size[1], size[0], **limits)
    except ValueError:
        with pytest.raises(UnfitImageError, match="the processor takes 200"):
            smart_resize(size, **limits)
        return
    assert smart_resize(size, **limits) == (width, height)


def test_one_token_represents_a_square_of_patches() -> None:
    images = NativeImages(
        patch_size=14,
        merge_size=2,
        temporal_patch_size=2,
        min_pixels=3136,
        max_pixels=1_003_520,
        image_token="<|image_pad|>",
        wrapping=("<|vision_start|>", "<|vision_end|>"),
    )
    plan = images.plan((640, 480))
    assert plan.recipes[0].size == (644, 476)
    assert plan.placeholder == (("<|image_pad|>", 23 * 17),)
    assert plan.num_pixels == 644 * 476
