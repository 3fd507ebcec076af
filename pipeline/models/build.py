"""Building of a model for a config and a data set: from folders or from seeded random weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from pipeline.models.data_facts import DataFacts
from pipeline.models.data_fit import check_config, check_features, check_processors, check_small_fit
from pipeline.models.loading.pretrained import load_hugging_face, make_random
from pipeline.models.loading.tower_folders import (
    check_image_size,
    check_vocabulary,
    language_values,
    load_language_tower,
    load_vision_tower,
    read_language_config,
    read_vision_config,
    vision_values,
)
from pipeline.models.small_vlm import MODEL_TYPE, SmallVLM, SmallVLMConfig, read_model_config
from pipeline.models.vision_language import VisionLanguageModel
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.configs.model_parts import LanguageConfig, ModelConfig, VisionConfig


def build_model(
    config: ModelConfig, facts: DataFacts, *, seed: int, as_stored: bool = False
) -> VisionLanguageModel:
    """Build the model of `config`, fp32 on the CPU; random weights depend on `seed` alone.

    With `as_stored` a Hugging Face model keeps the precision of its files, which takes half of
    the memory for bf16; the caller must convert it.

    Raises:
        StageConfigError: there is no such model, or it does not fit the data set.
    """
    check_processors(config, facts)
    if config.type == "hugging_face":
        dtype: torch.dtype | Literal["auto"] = "auto" if as_stored else torch.float32
        loaded = load_hugging_face(config, facts, dtype=dtype)
        check_config(loaded)
        check_features(loaded)
        return loaded
    if config.path is not None:
        model = SmallVLM.from_pretrained(Path(config.path))
        check_small_fit(model.config, facts)
        return model
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
    check_processors(config, facts)
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
        values: Mapping[str, Any] = json.loads(read_bytes(folder / "config.json"))
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
        language_config = read_language_config(config)
        check_vocabulary(config, language_config.vocab_size, facts)
        return language_values(language_config, facts.eos_token_id)
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
