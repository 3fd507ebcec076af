"""Each picture of Pixtral's tower has the features that transformers gives it alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import AutoModelForImageTextToText

from pipeline.models.build import build_model
from pipeline.models.hugging_face import HuggingFaceVLM, features_of
from pipeline.models.layouts.tower_arguments import plain_arguments
from tests.pipeline.models.conftest import Kind

SIZES = ((28, 84), (56, 56), (28, 84), (112, 28))


def padded(numbers: list[int]) -> dict[str, object]:
    """Pictures of those numbers, filled up with what must not be seen."""
    sizes = [SIZES[number] for number in numbers]
    height, width = (max(sides) for sides in zip(*sizes, strict=True))
    pixels = torch.full((len(sizes), 3, height, width), 1e3)
    for image, number, (rows, columns) in zip(pixels, numbers, sizes, strict=True):
        draw = torch.Generator().manual_seed(number)
        image[:, :rows, :columns] = torch.randn(3, rows, columns, generator=draw)
    return {"pixel_values": pixels, "image_sizes": tuple(sizes)}


@pytest.mark.parametrize("how", ["by segment", "varlen", "eager"])
@pytest.mark.parametrize("name", ["lighton_ocr", "mistral3"])
def test_features_of_several_pictures_are_those_of_each_alone(make_kind, name: str, how: str):
    kind: Kind = make_kind(name)
    config = dataclasses.replace(kind.config, attention=how) if how == "eager" else kind.config
    model = build_model(config, kind.facts, seed=0).eval()
    assert isinstance(model, HuggingFaceVLM)
    model.uses_varlen = how == "varlen"
    original = AutoModelForImageTextToText.from_pretrained(kind.model_dir).eval()
    alone = []
    with torch.no_grad():
        found = torch.cat(list(features_of(model.image_features(padded([0, 1, 2, 3])))))
        for number in range(len(SIZES)):
            plain = plain_arguments(padded([number]), torch.device("cpu"))
            output = original.model.get_image_features(**plain, return_dict=True)
            alone += [features.reshape(-1, found.shape[-1]) for features in features_of(output)]
    torch.testing.assert_close(found, torch.cat(alone), atol=1e-5, rtol=1e-4)
