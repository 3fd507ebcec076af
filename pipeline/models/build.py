"""From a config and a data set to a model: from a folder or from seeded random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch

from pipeline.models.small_vlm import SmallVLM, SmallVLMConfig
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.train import ModelConfig


class DatasetFacts(Protocol):
    """What a model must know of the data that it is trained on."""

    @property
    def image_size(self) -> int:
        """Side of the square images in pixels."""

    @property
    def image_mean(self) -> tuple[float, ...]:
        """Of each channel, after scaling to 0..1."""

    @property
    def image_std(self) -> tuple[float, ...]:
        """Of each channel, after scaling to 0..1."""

    @property
    def image_token_id(self) -> int:
        """The token that stands for one patch."""

    @property
    def pad_token_id(self) -> int:
        """The token that fills up batches."""

    @property
    def eos_token_id(self) -> int:
        """The token that ends an answer."""

    @property
    def vocab_size(self) -> int:
        """Tokens that the tokenizer knows."""

    @property
    def num_image_tokens(self) -> int:
        """Tokens that one image takes in the text."""


def build_model(config: ModelConfig, facts: DatasetFacts, *, seed: int) -> SmallVLM:
    """The model that `config` describes, fp32 on the CPU; random weights depend on `seed` alone.

    Raises:
        StageConfigError: the model does not fit the data set.
    """
    if config.path is not None:
        model = load_model(Path(config.path))
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = SmallVLM(small_vlm_config(config, facts))
    check_fit(model.config, facts)
    return model


def load_model(folder: Path) -> SmallVLM:
    """The model in a folder, whatever its type (today: `small_vlm`)."""
    return SmallVLM.from_pretrained(folder)


def small_vlm_config(config: ModelConfig, facts: DatasetFacts) -> SmallVLMConfig:
    """Sizes from the config, everything else from the data set."""
    vision, language = config.vision, config.language
    if facts.image_size % vision.patch_size:
        message = (
            f"model.vision.patch_size is {vision.patch_size}: "
            f"give a divisor of the data set's image size ({facts.image_size})"
        )
        raise StageConfigError(message)
    return SmallVLMConfig(
        vision={
            "hidden_size": vision.hidden_size,
            "intermediate_size": vision.mlp_ratio * vision.hidden_size,
            "num_hidden_layers": vision.num_layers,
            "num_attention_heads": vision.num_heads,
            "image_size": facts.image_size,
            "patch_size": vision.patch_size,
        },
        language={
            "vocab_size": facts.vocab_size,
            "hidden_size": language.hidden_size,
            "intermediate_size": language.mlp_ratio * language.hidden_size,
            "num_hidden_layers": language.num_layers,
            "num_attention_heads": language.num_heads,
            "num_key_value_heads": language.num_kv_heads,
            "max_position_embeddings": language.max_positions,
            "pad_token_id": facts.pad_token_id,
            "eos_token_id": facts.eos_token_id,
        },
        image_token_id=facts.image_token_id,
        pad_token_id=facts.pad_token_id,
        image_mean=tuple(facts.image_mean),
        image_std=tuple(facts.image_std),
    )


def check_fit(config: SmallVLMConfig, facts: DatasetFacts) -> None:
    """Compare what model and data set say of images and tokens.

    Raises:
        StageConfigError: naming each difference.
    """
    pairs = {
        "image tokens a picture": (config.num_image_tokens, facts.num_image_tokens),
        "image size in pixels": (config.vision["image_size"], facts.image_size),
        "image token": (config.image_token_id, facts.image_token_id),
        "end token": (config.language["eos_token_id"], facts.eos_token_id),
        # training normalises by the data set's, whoever uses the model by the model's
        "image mean": (_rounded(config.image_mean), _rounded(facts.image_mean)),
        "image deviation": (_rounded(config.image_std), _rounded(facts.image_std)),
    }
    wrong = [f"{k}: model {m}, data set {d}" for k, (m, d) in pairs.items() if m != d]
    if config.language["vocab_size"] < facts.vocab_size:
        wrong.append(f"tokens: model {config.language['vocab_size']}, data set {facts.vocab_size}")
    if wrong:
        message = (
            f"the model does not fit the data set ({'; '.join(wrong)}): set model.vision."
            "patch_size to the processor's, or preprocess with the processor in model.path"
        )
        raise StageConfigError(message)


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, 6) for value in values)
