"""Sizes of LightOnOCR's pictures against transformers' own arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.processors.folder import read_processor
from slurm_jobs.formats.processors.image_plans import ImageRules, UnfitImageError
from tests.pipeline.preprocess.processors.test_reading import write_folder

LIGHTON = {
    "image_processor_type": "PixtralImageProcessorFast",
    "size": {"longest_edge": 1540},
    "patch_size": 28,
}
SIDE = st.integers(1, 20_000)


def images_of(folder: Path, **changes: object) -> ImageRules:
    return read_processor(write_folder(folder, {**LIGHTON, **changes})).images


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageRules:
    return images_of(tmp_path_factory.mktemp("lighton") / "p")


@settings(derandomize=True, deadline=None, max_examples=500)
@given(size=st.tuples(SIDE, SIDE))
@example(size=(1, 1))
@example(size=(1540, 1540))
@example(size=(1541, 1))  # reduced to no pixel
def test_size_is_that_of_transformers(images: ImageRules, size: tuple[int, int]) -> None:
    from transformers.models.pixtral import image_processing_pil_pixtral as pixtral

    shape = np.broadcast_to(np.uint8(0), (3, size[1], size[0]))
    height, width = pixtral.get_resize_output_image_size(
        shape, size=(1540, 1540), patch_size=(28, 28), input_data_format="channels_first"
    )
    if not min(height, width):
        with pytest.raises(UnfitImageError, match=r"resized to .* pixels; a token is 28 x 28"):
            images.plan(size)
        return
    plan = images.plan(size)
    assert plan.recipes[0].size == (width, height)
    assert plan.placeholder == (("<|image_pad|>", width * height // 28**2),)


def test_sides_of_two_lengths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StageConfigError, match=r"patch_size .* height and width, which are equal"):
        images_of(tmp_path / "p", patch_size={"height": 28, "width": 14})
