"""Types of models and processors that check knows."""

from __future__ import annotations

import pytest

from pipeline.models.families import FAMILIES
from slurm_jobs.formats.processors import builders
from slurm_jobs.formats.processors.model_types import (
    MADE_IMAGES,
    TAKEN_IMAGES,
    image_processor_class,
)

_KINDS = {
    builders.build_fixed: "fixed",
    builders.build_gemma3: "fixed",
    builders.build_gemma4: "native",
    builders.build_glm: "native",
    builders.build_idefics: "tiled",
    builders.build_internvl: "tiled",
    builders.build_llava_next: "tiled",
    builders.build_llava_onevision: "tiled",
    builders.build_native: "native",
    builders.build_paddleocr: "native",
    builders.build_pixtral: "native",
}


def test_check_knows_the_families_of_whole_models() -> None:
    assert {name: family.image_kind for name, family in FAMILIES.items()} == TAKEN_IMAGES


def test_check_knows_the_processors_that_preprocess_understands() -> None:
    assert {name: _KINDS[one.build] for name, one in builders.BUILDERS.items()} == MADE_IMAGES


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"image_processor_type": "Qwen2VLImageProcessorFast"}, "Qwen2VLImageProcessor"),
        ({"image_processor_type": "SmolVLMImageProcessorPil"}, "SmolVLMImageProcessor"),
        ({"feature_extractor_type": "CLIPFeatureExtractor"}, "CLIPImageProcessor"),
        ({}, ""),
    ],
)
def test_a_processor_has_one_name_whatever_its_back_end(values: dict[str, str], name: str) -> None:
    assert image_processor_class(values) == name
