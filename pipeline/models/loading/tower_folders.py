"""Parts of the small model from separate folders: a SigLIP encoder, a Qwen2 language model.

Sizes are read from config.json alone, so a misfit is refused before weights are read. A learned
position table fixes the size of images, and an embedding table the tokens. Neither is resized,
because random new rows would pass for learned ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from transformers import (
    PreTrainedConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.models.data_facts import DataFacts
from pipeline.models.loading.pretrained import load_part, read_config_values
from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.formats.configs.model_parts import LanguageConfig, VisionConfig
from slurm_jobs.formats.processors.model_types import (
    LANGUAGE_PART,
    VISION_PART,
    PartKind,
    wrong_part,
)

_VISION_KEY, _LANGUAGE_KEY = "model.vision.path", "model.language.path"


_RGB = 3


class _VisionTower(SiglipVisionModel):
    """Vision tower of a whole SigLIP, without warnings about its known unused parts."""

    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [  # type: ignore[misc]  # no ClassVar there
        r"^(vision_model\.)?head\.",
        r"^text_model\.",
        r"^logit_(scale|bias)$",
    ]


def read_vision_config(config: VisionConfig) -> SiglipVisionConfig:
    """Read the config of the encoder in `config.path`, without the pooling head.

    Raises:
        StageConfigError: no such encoder is there, or the given sizes differ.
    """
    assert config.path is not None
    _check_kind(_VISION_KEY, config.path, VISION_PART)
    # From a whole SigLIP this reads the vision model's part.
    vision_config = SiglipVisionConfig.from_pretrained(config.path, local_files_only=True)
    vision_config.vision_use_head = False
    vision_config.image_size = _side(vision_config.image_size, "image_size", config.path)
    vision_config.patch_size = _side(vision_config.patch_size, "patch_size", config.path)
    if vision_config.num_channels != _RGB:
        message = f"{config.path}: num_channels is {vision_config.num_channels}; images have {_RGB}"
        raise StageDataError(message)
    sizes = {"patch_size": vision_config.patch_size, **_sizes_of(vision_config)}
    _check_given("model.vision", config.path, config.given(), sizes)
    return vision_config


def read_language_config(config: LanguageConfig) -> Qwen2Config:
    """Read the config of the language model in `config.path`.

    Raises:
        StageConfigError: no such model is there, or the given sizes differ.
    """
    assert config.path is not None
    _check_kind(_LANGUAGE_KEY, config.path, LANGUAGE_PART)
    language_config = Qwen2Config.from_pretrained(config.path, local_files_only=True)
    sizes: dict[str, Any] = {
        "num_kv_heads": language_config.num_key_value_heads,
        "max_positions": language_config.max_position_embeddings,
        **_sizes_of(language_config),
    }
    _check_given("model.language", config.path, config.given(), sizes)
    return language_config


def load_vision_tower(config: VisionConfig) -> SiglipVisionModel:
    """Load the encoder with its weights, fp32 on the CPU.

    Raises:
        StageConfigError: it cannot be loaded completely.
    """
    assert config.path is not None
    return load_part(_VisionTower, config.path, _VISION_KEY, read_vision_config(config))


def load_language_tower(config: LanguageConfig, eos_token_id: int) -> Qwen2ForCausalLM:
    """Load the language model with its weights, fp32 on the CPU; answers end with `eos_token_id`.

    Raises:
        StageConfigError: it cannot be loaded completely.
    """
    language_config = read_language_config(config)
    language_config.eos_token_id = eos_token_id
    assert config.path is not None
    return load_part(Qwen2ForCausalLM, config.path, _LANGUAGE_KEY, language_config)


def vision_values(config: SiglipVisionConfig) -> dict[str, Any]:
    """Return the values of `SmallVLMConfig.vision`."""
    values = _own_values(config)
    # The small model never has one; transformers 5.20 omits it.
    values.pop("vision_use_head", None)
    return values


def language_values(config: Qwen2Config, eos_token_id: int) -> dict[str, Any]:
    """Return the values of `SmallVLMConfig.language`; answers end with `eos_token_id`."""
    return {**_own_values(config), "eos_token_id": eos_token_id}


def check_image_size(config: VisionConfig, info: DatasetInfo) -> None:
    """Compare the size of the data set's images with that of the encoder in `config.path`.

    Raises:
        StageConfigError: they differ.
    """
    vision_config = read_vision_config(config)
    if vision_config.image_size != info.image_height:
        side: Any = vision_config.image_size  # one number, from `_side`, as is the patch's
        places = side // vision_config.patch_size
        message = (
            f"{config.path} needs images of {vision_config.image_size} x "
            f"{vision_config.image_size} pixels (its learned position table "
            f"has {places} x {places} entries), but the data set's are "
            f"{info.image_height} x {info.image_width}: preprocess with the image processor of "
            "that folder (`processor.images`), or use an encoder of that size"
        )
        raise StageDataError(message)


def check_vocabulary(config: LanguageConfig, num_rows: int, facts: DataFacts) -> None:
    """Check that each token of the data set has its row in the embedding table.

    Raises:
        StageConfigError: there are more tokens than rows (none are added: usually the tokenizer
            belongs to another model).
    """
    assert config.path is not None
    if facts.vocab_size > num_rows or facts.info.image_token_id >= num_rows:
        message = (
            f"{config.path} has embeddings of {num_rows} tokens, but the data set's tokenizer "
            f"has {facts.vocab_size} (its image token {facts.info.image_token!r} is number "
            f"{facts.info.image_token_id}): preprocess with the tokenizer of that folder "
            "(`processor.text`), and with one of its tokens as image token"
        )
        raise StageDataError(message)


def _own_values(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the values of a config that are specific to its kind of model."""
    names = type(config)().to_dict().keys() - PreTrainedConfig().to_dict().keys()
    return {name: value for name, value in sorted(config.to_dict().items()) if name in names}


def _sizes_of(config: Any) -> dict[str, float]:
    return {
        "hidden_size": config.hidden_size,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "mlp_ratio": config.intermediate_size / config.hidden_size,
    }


def _check_given(
    key: str, path: str, given: Mapping[str, int], values: Mapping[str, float]
) -> None:
    wrong = [
        f"{key}.{name} is {value}, but {values[name]:g} there"
        for name, value in given.items()
        if value != values[name]
    ]
    if wrong:
        message = f"{path}: {'; '.join(wrong)}: leave it out, the folder determines sizes"
        raise StageDataError(message)


def _check_kind(key: str, path: str, part: PartKind) -> None:
    """Refuse another kind of model, and packed weights: they could not be trained."""
    wrong = wrong_part(read_config_values(path, key), part)
    if wrong:
        message = f"{key} {path}: {wrong}"
        raise StageConfigError(message)


def _side(value: Any, name: str, path: str) -> int:
    """Return the side of a square, which newer configs may give as two numbers."""
    sides = {value} if isinstance(value, int) else set(value)
    if len(sides) == 1:
        return int(sides.pop())
    message = f"{path}: {name} is {value}; it must be square"
    raise StageDataError(message)
