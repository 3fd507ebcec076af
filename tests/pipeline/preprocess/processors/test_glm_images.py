"""Sizes of GLM's pictures against transformers' own arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.processors.folder import read_processor
from slurm_jobs.formats.processors.glm_images import GlmImages
from slurm_jobs.formats.processors.image_plans import UnfitImageError
from tests.pipeline.preprocess.processors.test_reading import write_folder

GLM = {
    "image_processor_type": "Glm4vImageProcessor",
    "size": {"shortest_edge": 12_544, "longest_edge": 9_633_792},
}
SIDE = st.integers(1, 20_000)


def images_of(folder: Path, **changes: object) -> GlmImages:
    images = read_processor(write_folder(folder, {**GLM, **changes})).images
    assert isinstance(images, GlmImages)
    return images


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> GlmImages:
    return images_of(tmp_path_factory.mktemp("glm") / "p")


@settings(derandomize=True, deadline=None, max_examples=500)
@given(size=st.tuples(SIDE, SIDE))
@example(size=(3, 5))  # both sides are shorter than a token
@example(size=(27, 20_000))
@example(size=(28, 5_600))  # 200 : 1
@example(size=(28, 5_601))
def test_size_is_that_of_transformers(images: GlmImages, size: tuple[int, int]) -> None:
    from transformers.models.glm4v import image_processing_pil_glm4v as glm4v

    limits = {"min_pixels": 12_544, "max_pixels": 9_633_792}
    try:
        height, width = glm4v.smart_resize(2, size[1], size[0], **limits)
    except ValueError:
        with pytest.raises(UnfitImageError, match="the processor takes 200"):
            images.plan(size)
        return
    plan = images.plan(size)
    assert plan.recipes[0].size == (width, height)
    assert plan.placeholder == (("<|image|>", width * height // 28**2),)


@pytest.mark.parametrize(
    "size",
    [
        {"shortest_edge": 12_545, "longest_edge": 9_633_792},
        {"shortest_edge": 12_544, "longest_edge": 12_542},
        {"height": 28, "width": 28},
    ],
    ids=["no multiple", "least is more than most", "sides"],
)
def test_sizes_that_are_no_areas_in_time_are_refused(tmp_path: Path, size: dict[str, int]) -> None:
    with pytest.raises(StageConfigError, match="each repetition in time counted, so multiples of"):
        images_of(tmp_path / "p", size=size)
