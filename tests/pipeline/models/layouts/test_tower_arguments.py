"""What Qwen's and GLM's towers are told of the sizes of pictures, on the host."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.utils import _to_kwargs
from transformers import AutoModelForImageTextToText

from pipeline.models.hugging_face import HuggingFaceVLM, features_of
from pipeline.models.layouts.image_layout import VisionInputs
from pipeline.models.layouts.tower_arguments import plain_arguments, tower_arguments
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.host_reads import inputs_of

NATIVE = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm_ocr", "paddleocr_vl")


def model_and_pictures(kind: Kind) -> tuple[HuggingFaceVLM, VisionInputs]:
    model = kind.build()
    assert isinstance(model, HuggingFaceVLM)
    return model, inputs_of(kind, model, pictures=True).vision


@pytest.mark.parametrize("name", NATIVE)
def test_features_are_the_same_bits_as_when_transformers_works_it_out(make_kind, name):
    kind = make_kind(name)
    model, vision = model_and_pictures(kind)
    plain = plain_arguments(vision, torch.device("cpu"))
    told = tower_arguments(vision, model.family.follow_from_grids, model.vision_tower)
    assert told.keys() > plain.keys()
    ours = features_of(model.image_features(vision))
    original = AutoModelForImageTextToText.from_pretrained(kind.model_dir)
    theirs = features_of(original.model.get_image_features(**plain, return_dict=True))
    for found, expected in zip(ours, theirs, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", [*NATIVE, "llava_next", "llava_onevision"])
def test_sharded_root_does_not_move_sizes_to_the_device(make_kind, name):
    _, vision = model_and_pictures(make_kind(name))
    # What fully_shard and DistributedDataParallel do with what a model is called with.
    _, (moved,) = _to_kwargs((), {"vision": vision}, torch.device("meta"), False)
    sizes = {k: v for k, v in vision.items() if not isinstance(v, torch.Tensor)}
    assert len(sizes) == (2 if name == "llava_onevision" else 1)
    assert moved["vision"] == {"pixel_values": moved["vision"]["pixel_values"], **sizes}
    assert moved["vision"]["pixel_values"].is_meta
