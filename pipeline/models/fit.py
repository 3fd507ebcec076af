"""Checks that a model fits the data set that it is to be trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pipeline.models.facts import DataFacts
from pipeline.models.hugging_face import HuggingFaceVLM, features_of
from pipeline.models.pixels import PixelScale
from pipeline.models.small_vlm import SmallVLMConfig
from slurm_jobs.common.errors import StageConfigError

_REMEDY = "preprocess with the processor that the model came with"
_Pairs = Mapping[str, tuple[Any, Any]]
"""Values of the model and of the data set, by their name."""


def check_small_fit(config: SmallVLMConfig, facts: DataFacts) -> None:
    """Compare the image and token settings of the small model and the data set.

    Raises:
        StageConfigError: naming each difference.
    """
    info, scale = facts.info, facts.pixel_scale.rounded()
    own = PixelScale(mean=config.image_mean, std=config.image_std).rounded()
    pairs = {
        "image tokens a picture": (config.num_image_tokens, info.num_image_tokens),
        "image size in pixels": (config.vision["image_size"], info.image_height),
        "image token": (config.image_token_id, info.image_token_id),
        "end token": (config.language["eos_token_id"], facts.eos_token_id),
        # training normalises by the data set's values, users of the model by the model's
        "image mean": (own.mean, scale.mean),
        "image deviation": (own.std, scale.std),
    }
    remedy = (
        "set model.vision.patch_size to the processor's, or preprocess with the processor that "
        "the model or its vision encoder came with"
    )
    _compare(pairs, config.language["vocab_size"], facts, remedy)


def check_config(model: HuggingFaceVLM) -> None:
    """Compare the image and token settings of a transformers model and the data set.

    Raises:
        StageConfigError: naming each difference.
    """
    config, facts = model.hf.config, model.facts
    info, vision = facts.info, config.vision_config
    pairs: dict[str, tuple[Any, Any]] = {
        "image token": (config.image_token_id, info.image_token_id),
    }
    if info.image_kind == "native":
        pairs |= {
            "patch size in pixels": (vision.patch_size, info.patch_size),
            "merge size in patches": (vision.spatial_merge_size, info.merge_size),
            "temporal patch size": (vision.temporal_patch_size, info.temporal_patch_size),
        }
    else:
        pairs["image size in pixels"] = (vision.image_size, info.image_height)
    _compare(pairs, config.get_text_config().vocab_size, facts, _REMEDY)


def check_features(model: HuggingFaceVLM) -> None:
    """Compare the number of image tokens of the vision tower and of the data set.

    Raises:
        StageConfigError: they differ.
    """
    expected = model.facts.info.num_image_tokens
    if expected is not None:
        pairs = {"image tokens a picture": (_count_features(model), expected)}
        _compare(pairs, model.facts.vocab_size, model.facts, _REMEDY)


def _compare(pairs: _Pairs, vocab_size: int, facts: DataFacts, remedy: str) -> None:
    wrong = [f"{k}: model {m}, data set {d}" for k, (m, d) in pairs.items() if m != d]
    if vocab_size < facts.vocab_size:
        wrong.append(f"tokens: model {vocab_size}, data set {facts.vocab_size}")
    if wrong:
        message = f"the model does not fit the data set ({'; '.join(wrong)}): {remedy}"
        raise StageConfigError(message)


@torch.no_grad()
def _count_features(model: HuggingFaceVLM) -> int:
    """Return the number of tokens that the vision tower makes from one image."""
    smallest = model.layout.smallest(torch.device("cpu"), torch.float32)
    first = next(features_of(model.image_features(smallest)))
    return first.numel() // first.shape[-1]
