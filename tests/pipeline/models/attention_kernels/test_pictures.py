"""Attention within pictures gives what transformers' own loop gives, in fewer calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pipeline.models.attention_kernels.pictures import picture_segments
from pipeline.models.hugging_face import features_of
from pipeline.models.layouts.tower_arguments import plain_arguments
from tests.pipeline.models.attention_calls import CountsAttention, build, original_of
from tests.pipeline.models.passes import gradients

CPU = torch.device("cpu")
NATIVE = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v", "glm_ocr", "paddleocr_vl")
GRIDS = torch.tensor([[1, 8, 6], [1, 4, 10], [1, 8, 6], [1, 2, 4]])
"""Patches; windows of the tiny Qwen2.5-VL are 4 x 4 patches, with smaller ones at borders."""


def pictures(tower: Any) -> dict[str, Any]:
    if hasattr(tower, "patch_embed"):
        size = [tower.patch_embed.proj.weight[0].numel()]
    else:  # PaddleOCR-VL
        size = list(tower.vision_model.embeddings.patch_embedding.weight[0].shape)
    draw = torch.Generator().manual_seed(4)
    pixels = torch.randn(int(GRIDS.prod(1).sum()), *size, generator=draw)
    return {"pixel_values": pixels, "image_grid_thw": tuple(map(tuple, GRIDS.tolist()))}


def features_and_gradients(
    features: Iterator[torch.Tensor], tower: torch.nn.Module
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    found = list(features)
    sum(
        ((n + 1) * value.square().sum() for n, value in enumerate(found)), torch.zeros(())
    ).backward()
    return [value.detach() for value in found], gradients(tower)


@pytest.mark.parametrize("uses_varlen", [False, True])
@pytest.mark.parametrize("name", NATIVE)
def test_features_and_gradients_of_pictures_are_those_of_transformers_loop(
    make_kind, name, uses_varlen
):
    kind = make_kind(name)
    original, model = original_of(kind), build(kind)
    model.uses_varlen = uses_varlen
    vision = pictures(model.vision_tower)
    plain = plain_arguments(vision, CPU)
    theirs = features_of(original.model.get_image_features(**plain, return_dict=True))
    expected, expected_gradients = features_and_gradients(theirs, original.model.visual)
    found, found_gradients = features_and_gradients(
        features_of(model.image_features(vision)), model.vision_tower
    )
    # Of one call for several segments each is computed as alone: the same bits.
    exact = {"atol": 0.0, "rtol": 0.0}
    # GLM-4V adds the learned positions around a patch in another order.
    is_close = uses_varlen or name == "glm4v"
    close = {"atol": 1e-5, "rtol": 1e-4} if is_close else exact
    torch.testing.assert_close(found, expected, **close)
    assert found_gradients.keys() == expected_gradients.keys()
    for part, gradient in expected_gradients.items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(
            found_gradients[part] / scale, gradient / scale, atol=1e-5, rtol=1e-4
        )


CALLS = {
    # Two layers of four pictures of three sizes.
    "qwen2_vl": (2 * 4, 2 * 3),
    # One of 12 windows of two sizes, one of pictures.
    "qwen2_5_vl": (12 + 4, 2 + 3),
    "qwen3_vl": (2 * 4, 2 * 3),
    "qwen3_5": (2 * 4, 2 * 3),
    "glm4v": (2 * 4, 2 * 3),
    "glm_ocr": (2 * 4, 2 * 3),
    "paddleocr_vl": (2 * 4, 2 * 3),
}
"""By transformers, and here."""


@pytest.mark.parametrize("name", NATIVE)
def test_attention_is_called_once_for_each_length_and_layer(make_kind, name):
    kind = make_kind(name)
    original, model = original_of(kind), build(kind)
    vision = pictures(model.vision_tower)
    with CountsAttention() as before, torch.no_grad():
        original.model.get_image_features(**plain_arguments(vision, CPU), return_dict=True)
    with CountsAttention() as after, torch.no_grad():
        model.image_features(vision)
    assert (before.calls, after.calls) == CALLS[name]


@pytest.mark.parametrize(
    ("lengths", "runs", "is_moved"),
    [
        ([4, 4, 4], ((3, 4),), False),
        ([4], ((1, 4),), False),
        ([6, 6, 2], ((2, 6), (1, 2)), False),
        ([6, 2, 6], ((1, 2), (2, 6)), True),
        ([2, 3, 2, 3, 3], ((2, 2), (3, 3)), True),
    ],
)
def test_segments_of_one_length_come_together_and_go_back(lengths, runs, is_moved):
    bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    found = picture_segments(bounds, lambda tensor: tensor)
    assert (found.runs, found.order is not None) == (runs, is_moved)
    if found.order is not None:
        places = torch.arange(int(bounds[-1]))
        assert torch.equal(places[found.order][found.inverse], places)
