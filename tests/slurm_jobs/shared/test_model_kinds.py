import pytest

from pipeline.models.families import FAMILIES
from slurm_jobs.shared.manifest_formats import MADE_IMAGES, TAKEN_IMAGES, image_processor_class
from slurm_jobs.shared.processors import folder

_KINDS = {
    folder.build_fixed: "fixed",
    folder.build_idefics: "tiled",
    folder.build_llava_next: "tiled",
    folder.build_native: "native",
}


def test_whole_models_that_check_knows_are_the_families_that_can_be_trained() -> None:
    assert {name: family.image_kind for name, family in FAMILIES.items()} == TAKEN_IMAGES


def test_processors_that_check_knows_are_those_that_preprocess_understands() -> None:
    assert {name: _KINDS[one.build] for name, one in folder.BUILDERS.items()} == MADE_IMAGES


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
