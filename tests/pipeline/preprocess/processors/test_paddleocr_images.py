"""Sizes of PaddleOCR-VL's pictures against transformers' own arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_jobs.formats.processors.folder import read_processor
from slurm_jobs.formats.processors.image_plans import ImageRules, UnfitImageError
from tests.pipeline.preprocess.processors.test_reading import write_folder

SIDE = st.integers(1, 20_000)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageRules:
    """As in the folder on hubs, whose limits have priority over `size`."""
    values = {"image_processor_type": "PaddleOCRVLImageProcessor"}
    limits = {"min_pixels": 147_384, "max_pixels": 2_822_400}
    folder: Path = tmp_path_factory.mktemp("paddle") / "p"
    return read_processor(write_folder(folder, {**values, **limits})).images


@settings(derandomize=True, deadline=None, max_examples=500)
@given(size=st.tuples(SIDE, SIDE))
@example(size=(3, 5))  # both sides are shorter than a token
@example(size=(27, 20_000))
@example(size=(28, 5_601))  # more than 200 : 1
def test_size_is_that_of_transformers(images: ImageRules, size: tuple[int, int]) -> None:
    from transformers.models.paddleocr_vl import image_processing_pil_paddleocr_vl as paddleocr

    try:
        height, width = paddleocr.smart_resize(
            size[1], size[0], min_pixels=147_384, max_pixels=2_822_400
        )
    except ValueError:
        with pytest.raises(UnfitImageError, match="the processor takes 200"):
            images.plan(size)
        return
    plan = images.plan(size)
    assert plan.recipes[0].size == (width, height)
    assert plan.placeholder == (("<|IMAGE_PLACEHOLDER|>", width * height // 28**2),)
