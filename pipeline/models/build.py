"""Building of a model for a config and a data set: from folders or from seeded random weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pipeline.data.info import DatasetInfo
from pipeline.models.beside import check_beside
from pipeline.models.facts import DataFacts
from pipeline.models.families import check_image_kind, find_family
from pipeline.models.fit import check_config, check_features, check_small_fit
from pipeline.models.interface import VisionLanguageModel
from pipeline.models.loading import (
    load_hugging_face,
    make_random,
    read_hugging_face_config,
    source_of,
)
from pipeline.models.small_vlm import (
    MODEL_TYPE,
    SmallVLM,
    SmallVLMConfig,
    read_model_config,
)
from pipeline.models.towers import (
    check_image_size,
    check_vocabulary,
    language_values,
    load_language_tower,
    load_vision_tower,
    read_language_config,
    read_vision_config,
    vision_values,
)
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.model import LanguageConfig, ModelConfig, VisionConfig


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
    found = info.image_kind
    if found == "fixed":
        found = f"{info.image_height} x {info.image_width} pixels"
    message = (
        f"the data set's images are {found}; model type small_vlm needs square ones of one size; "
        "preprocess with such a processor (SigLIP's, CLIP's), or set `model.type: hugging_face` "
        "and the model's path"
    )
    raise StageConfigError(message)


def build_model(
    config: ModelConfig, facts: DataFacts, *, seed: int, as_stored: bool = False
) -> VisionLanguageModel:
    """Build the model of `config`, fp32 on the CPU; random weights depend on `seed` alone.

    With `as_stored` a Hugging Face model keeps the precision of its files, which takes half of
    the memory for bf16; the caller must convert it.

    Raises:
        StageConfigError: there is no such model, or it does not fit the data set.
    """
    check_beside(config, facts)
    if config.type == "hugging_face":
        dtype = "auto" if as_stored else torch.float32
        loaded = load_hugging_face(config, facts, dtype=dtype)
        check_config(loaded)
        check_features(loaded)
        return loaded
    if config.path is not None:
        model = SmallVLM.from_pretrained(Path(config.path))
        check_small_fit(model.config, facts)
        return model
    return _build_small(config, facts, seed)


def _build_small(config: ModelConfig, facts: DataFacts, seed: int) -> SmallVLM:
    """Build the small model from the given towers; other parts start from random weights."""
    sizes = small_vlm_config(config, facts)
    check_small_fit(sizes, facts)  # before weights are read
    vision = language = None
    if config.vision.path is not None:
        vision = load_vision_tower(config.vision)
    if config.language.path is not None:
        language = load_language_tower(config.language, facts.eos_token_id)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SmallVLM(sizes, vision=vision, language=language).train()


def make_unloaded(
    config: ModelConfig, facts: DataFacts, device: torch.device
) -> VisionLanguageModel:
    """Build a model of these sizes with arbitrary weights, in training mode; none on "meta".

    Raises:
        StageConfigError: there is no such model, or it does not fit the data set.
    """
    check_beside(config, facts)
    if config.type == "hugging_face":
        model = make_random(config, facts, device)
        check_config(model)
        return model
    sizes = small_vlm_config(config, facts)
    if config.path is not None:
        sizes = read_model_config(Path(config.path))
    check_small_fit(sizes, facts)
    with device:
        return SmallVLM(sizes).train()


def load_model(
    folder: Path,
    facts: DataFacts,
    *,
    dtype: torch.dtype = torch.float32,
    trust_remote_code: bool = False,
) -> VisionLanguageModel:
    """Load the model that a training exported, on the CPU.

    Its parameters have `dtype`; buffers (positions among them) keep the dtype they are computed
    with. Code next to its weights runs only if the training trusted it. If it did not,
    transformers silently uses its own model of the same name.

    Raises:
        StageConfigError: the folder contains none.
    """
    try:
        values: Mapping[str, Any] = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        message = f"model folder {folder}: no readable config.json ({error})"
        raise StageConfigError(message) from error
    model: VisionLanguageModel
    if values.get("model_type") == MODEL_TYPE:
        model = SmallVLM.from_pretrained(folder)
    else:
        config = ModelConfig(
            type="hugging_face", path=str(folder), trust_remote_code=trust_remote_code
        )
        model = load_hugging_face(config, facts, dtype=dtype)
    for parameter in model.parameters():  # transformers keeps some in fp32
        parameter.data = parameter.data.to(dtype)
    return model


def small_vlm_config(config: ModelConfig, facts: DataFacts) -> SmallVLMConfig:
    """Return the config: sizes from the towers' folders or the config, the rest from the data set.

    Raises:
        StageConfigError: a folder contains no such tower, or one that does not fit.
    """
    return SmallVLMConfig(
        vision=_vision_values(config.vision, facts),
        language=_language_values(config.language, facts),
        image_token_id=facts.info.image_token_id,
        pad_token_id=facts.info.pad_token_id,
        image_mean=facts.pixel_scale.mean,
        image_std=facts.pixel_scale.std,
    )


def _vision_values(config: VisionConfig, facts: DataFacts) -> dict[str, Any]:
    if config.path is not None:
        check_image_size(config, facts.info)
        return vision_values(read_vision_config(config))
    sizes, image_size = config.sizes(), facts.info.image_height
    assert image_size is not None  # guaranteed by `check_small_images`
    if image_size % sizes["patch_size"]:
        message = (
            f"model.vision.patch_size is {sizes['patch_size']}: set a divisor of the data set's "
            f"image size ({image_size})"
        )
        raise StageConfigError(message)
    return {
        "hidden_size": sizes["hidden_size"],
        "intermediate_size": sizes["mlp_ratio"] * sizes["hidden_size"],
        "num_hidden_layers": sizes["num_layers"],
        "num_attention_heads": sizes["num_heads"],
        "image_size": image_size,
        "patch_size": sizes["patch_size"],
    }


def _language_values(config: LanguageConfig, facts: DataFacts) -> dict[str, Any]:
    if config.path is not None:
        found = read_language_config(config)
        check_vocabulary(config, found.vocab_size, facts)
        return language_values(found, facts.eos_token_id)
    sizes = config.sizes()
    return {
        "vocab_size": facts.vocab_size,
        "hidden_size": sizes["hidden_size"],
        "intermediate_size": sizes["mlp_ratio"] * sizes["hidden_size"],
        "num_hidden_layers": sizes["num_layers"],
        "num_attention_heads": sizes["num_heads"],
        "num_key_value_heads": sizes["num_kv_heads"],
        "max_position_embeddings": sizes["max_positions"],
        "pad_token_id": facts.info.pad_token_id,
        "eos_token_id": facts.eos_token_id,
    }
