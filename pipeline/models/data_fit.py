"""Checks that a model fits a data set: tokens, pixels, images and features."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.models.data_facts import DataFacts
from pipeline.models.families import check_image_kind, find_family
from pipeline.models.hugging_face import HuggingFaceVLM, features_of, square_side
from pipeline.models.layouts.pixel_scale import PixelScale
from pipeline.models.loading.pretrained import find_folder, read_hugging_face_config, source_of
from pipeline.models.loading.tower_folders import check_image_size
from pipeline.models.small_vlm import SmallVLMConfig
from pipeline.preprocess.chat.tokenizer import load_tokenizer
from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.formats.configs.model_parts import ModelConfig
from slurm_jobs.formats.processors.folder import read_normalisation


def check_processors(config: ModelConfig, facts: DataFacts) -> None:
    """Compare the tokenizer and the image processor of each of the model's folders.

    Training reads neither, because numbers of tokens and pixels come from the data set. If another
    processor made them, the model would learn from inputs with another meaning, and only its
    answers would show it. Files missing from a folder are not compared.

    Raises:
        StageConfigError: the data set was made with different ones.
    """
    if config.type == "hugging_face" or config.path is not None:
        folder = find_folder(config)
        _check_tokens(folder, facts, "the processor of that folder")
        _check_pixels(folder, facts, "the processor of that folder")
        return
    if config.language.path is not None:
        words = "the tokenizer of that folder (`processor.text`)"
        _check_tokens(Path(config.language.path), facts, words)
    if config.vision.path is not None:
        words = "the image processor of that folder (`processor.images`)"
        _check_pixels(Path(config.vision.path), facts, words)


def _check_tokens(folder: Path, facts: DataFacts, remedy: str) -> None:
    if not facts.vocabulary or not (folder / "tokenizer.json").is_file():
        return
    tokenizer = load_tokenizer(folder)
    wrong = _differences(tokenizer.get_vocab(), tokenizer.get_added_vocab(), facts.vocabulary)
    if wrong:
        message = (
            f"{folder}: its tokenizer and the data set's{_place(facts)} number {len(wrong)} "
            f"tokens differently ({wrong[min(wrong)]}), so the model would misread them: "
            f"preprocess with {remedy}"
        )
        raise StageDataError(message)


def _differences(
    numbers: Mapping[str, int], added: Mapping[str, int], others: Mapping[str, int]
) -> dict[int, str]:
    """Describe, by their number, the tokens of `numbers` that `others` numbers differently.

    Additional tokens do not count, and neither do tokens with new names whose old name only
    `added` has: models have spare tokens for their users.
    """
    named = {number: token for token, number in others.items()}
    wrong = {}
    for token, number in numbers.items():
        if others.get(token, number) != number:
            wrong[number] = f"{token!r} is {number} and {others[token]}"
        elif token not in added and named.get(number, token) != token:
            wrong[number] = f"{number} is {token!r} and {named[number]!r}"
    return wrong


def _check_pixels(folder: Path, facts: DataFacts, remedy: str) -> None:
    values = read_normalisation(folder)
    if values is None:
        return
    scale = PixelScale.of_processor(values.image_mean, values.image_std, values.rescale_factor)
    model, data = scale.rounded(), facts.pixel_scale.rounded()
    pairs = {"image mean": (model.mean, data.mean), "image deviation": (model.std, data.std)}
    wrong = [f"{name}: model {m}, data set {d}" for name, (m, d) in pairs.items() if m != d]
    if wrong:
        message = (
            f"{values.file}: the model normalises pixels differently from the data "
            f"set{_place(facts)} ({'; '.join(wrong)}, for pixels from 0 to 1): preprocess with "
            f"{remedy}; or, if its weights were trained with the data set's values, set them in "
            "a copy of that folder"
        )
        raise StageDataError(message)


def _place(facts: DataFacts) -> str:
    """Return the location of the data set's processor, if known."""
    return "" if facts.tokenizer is None else f" ({facts.tokenizer.name_or_path})"


_REMEDY = "preprocess with the processor that the model came with"


def check_small_fit(config: SmallVLMConfig, facts: DataFacts) -> None:
    """Compare the image and token settings of the small model and the data set.

    Raises:
        StageConfigError: naming each difference.
    """
    info, scale = facts.info, facts.pixel_scale.rounded()
    model_scale = PixelScale(mean=config.image_mean, std=config.image_std).rounded()
    pairs = {
        "image tokens a picture": (config.num_image_tokens, info.num_image_tokens),
        "image size in pixels": (config.vision["image_size"], info.image_height),
        "image token": (config.image_token_id, info.image_token_id),
        "end token": (config.language["eos_token_id"], facts.eos_token_id),
        # training normalises by the data set's values, users of the model by the model's
        "image mean": (model_scale.mean, scale.mean),
        "image deviation": (model_scale.std, scale.std),
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
        # Gemma 4 pools, and takes each image once; LightOnOCR's projector merges.
        merges = ((vision, "pooling_kernel_size"), (vision, "spatial_merge_size"))
        places = (*merges, (config, "spatial_merge_size"))
        merge_size = next(getattr(part, name) for part, name in places if hasattr(part, name))
        repeats = getattr(vision, "temporal_patch_size", 1)
        pairs |= {
            "patch size in pixels": (vision.patch_size, info.patch_size),
            "merge size in patches": (merge_size, info.merge_size),
            "temporal patch size": (repeats, info.temporal_patch_size),
        }
    else:
        pairs["image size in pixels"] = (square_side(vision.image_size), info.image_height)
    _compare(pairs, config.get_text_config().vocab_size, facts, _REMEDY)


@torch.no_grad()
def check_features(model: HuggingFaceVLM) -> None:
    """Compare the number of image tokens of the vision tower and of the data set.

    Raises:
        StageConfigError: they differ.
    """
    expected = model.facts.info.num_image_tokens
    if expected is not None:
        smallest = model.layout.smallest(torch.device("cpu"), torch.float32)
        features = next(features_of(model.image_features(smallest)))  # of one image
        num_tokens = features.numel() // features.shape[-1]
        pairs = {"image tokens a picture": (num_tokens, expected)}
        _compare(pairs, model.facts.vocab_size, model.facts, _REMEDY)


def _compare(
    pairs: Mapping[str, tuple[Any, Any]], vocab_size: int, facts: DataFacts, remedy: str
) -> None:
    """Refuse differences; pairs have the model's and the data set's value, by name."""
    wrong = [f"{k}: model {m}, data set {d}" for k, (m, d) in pairs.items() if m != d]
    if vocab_size < facts.vocab_size:
        wrong.append(f"tokens: model {vocab_size}, data set {facts.vocab_size}")
    if wrong:
        message = f"the model does not fit the data set ({'; '.join(wrong)}): {remedy}"
        raise StageConfigError(message)


def check_images(config: ModelConfig, info: DatasetInfo) -> None:
    """Refuse images that the model does not take, before copying or building anything.

    Raises:
        StageConfigError: they are stored differently from what the model's own processor
            produces.
    """
    if config.type == "small_vlm":
        check_small_images(info)
        if config.vision.path is not None:
            check_image_size(config.vision, info)
    else:
        hf_config = read_hugging_face_config(config)
        family = find_family(hf_config.model_type, source_of(config))
        check_image_kind(family, hf_config.model_type, info)


def check_small_images(info: DatasetInfo) -> None:
    """Check the images of the small model: all of one size, and square.

    Raises:
        StageConfigError: they are not.
    """
    if info.image_kind == "fixed" and info.image_height == info.image_width:
        return
    kind: str = info.image_kind
    if kind == "fixed":
        kind = f"{info.image_height} x {info.image_width} pixels"
    message = (
        f"the data set's images are {kind}; model type small_vlm needs square ones of one size; "
        "preprocess with such a processor (SigLIP's, CLIP's), or set `model.type: hugging_face` "
        "and the model's path"
    )
    raise StageConfigError(message)
