"""The small vision-language model of our own: SigLIP encoder, MLP projector, Qwen2 decoder.

Its architecture is LLaVA's (arXiv:2304.08485): each image token of the text is
replaced by the projected embedding of one patch. Small enough to learn a real
task on two CPU cores, and made of the same parts as the large ones.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional
from transformers import Qwen2Config, Qwen2ForCausalLM, SiglipVisionConfig, SiglipVisionModel

from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.files import write_json_atomic

MODEL_TYPE = "small_vlm"
WEIGHTS_NAME = "model.safetensors"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SmallVLMConfig:
    """What `config.json` says: enough to build the model and to feed it."""

    vision: Mapping[str, Any]
    """Keyword arguments of `SiglipVisionConfig`."""
    language: Mapping[str, Any]
    """Keyword arguments of `Qwen2Config`."""
    image_token_id: int
    pad_token_id: int
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]

    @property
    def num_image_tokens(self) -> int:
        """Tokens that one image takes in the text: one a patch."""
        return (self.vision["image_size"] // self.vision["patch_size"]) ** 2

    def to_json(self) -> dict[str, Any]:
        """The content of `config.json`."""
        return {
            "model_type": MODEL_TYPE,
            "architectures": ["SmallVLM"],
            **dataclasses.asdict(self),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SmallVLMConfig:
        """The config that `to_json` described."""
        known = {f.name: values[f.name] for f in dataclasses.fields(cls)}
        for name in ("image_mean", "image_std"):
            known[name] = tuple(known[name])
        return cls(**known)


class SmallVLM(nn.Module):
    """Images and text in, loss or text out."""

    def __init__(self, config: SmallVLMConfig) -> None:
        super().__init__()
        self.config = config
        # Without SigLIP's pooling head: its output is never used, and a
        # parameter without a gradient has no place in an optimizer.
        vision = SiglipVisionConfig(**config.vision, vision_use_head=False)
        language = Qwen2Config(**config.language, tie_word_embeddings=False)
        self.vision = SiglipVisionModel(vision)
        self.projector = nn.Sequential(
            nn.Linear(vision.hidden_size, language.hidden_size),
            nn.GELU(),
            nn.Linear(language.hidden_size, language.hidden_size),
        )
        self.language = Qwen2ForCausalLM(language)

    @property
    def attention_name(self) -> str:
        """Which attention implementation runs (`sdpa`, `eager`)."""
        return str(self.language.config._attn_implementation)  # noqa: SLF001 - no public name

    def towers(self) -> list[list[nn.Module]]:
        """Layers in the order in which they run, one list a tower: the units of sharding."""
        return [list(self.vision.encoder.layers), list(self.language.model.layers)]

    def embed(self, input_ids: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """Token embeddings with the image tokens replaced by projected patches, in order.

        Args:
            input_ids: int64 [batch, tokens].
            images: Normalised float [num_images, 3, height, width]; num_images may be 0.

        Returns:
            Float [batch, tokens, hidden].
        """
        text = self.language.model.embed_tokens(input_ids)
        if images.shape[0] == 0 and not self.training:
            return text
        # A rank without an image must still enter the collectives of the
        # vision tower, and give its parameters a (zero) gradient.
        used = images if images.shape[0] else images.new_zeros(1, *images.shape[1:])
        patches = self.projector(self.vision(pixel_values=used).last_hidden_state)
        if images.shape[0] == 0:
            return text + 0.0 * patches.sum()
        is_image = (input_ids == self.config.image_token_id).unsqueeze(-1)
        return text.masked_scatter(is_image, patches.to(text.dtype).flatten(0, 1))

    def forward(
        self,
        input_ids: torch.Tensor,
        images: torch.Tensor,
        labels: torch.Tensor,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Summed cross-entropy over the supervised tokens, in nats.

        The sum, not the mean: the caller knows how many tokens all ranks and
        microbatches of the step supervise.

        Args:
            input_ids: int64 [batch, tokens], padded on the right: a causal model never looks
                there, so attention needs no mask, and is faster without one.
            images: Normalised float [num_images, 3, height, width].
            labels: int64 [batch, tokens], aligned with `input_ids`; -100, which
                torch ignores by default, is not supervised.
            position_ids: int64 [batch, tokens], where rows hold several samples: they begin
                at 0 in each, which keeps attention within it. None for one sample a row.

        Returns:
            float32 scalar.
        """
        hidden = self.language.model(
            inputs_embeds=self.embed(input_ids, images),
            # transformers sees packed rows only without a mask and without a cache; with either,
            # samples would see each other, and nothing would say so.
            attention_mask=None,
            position_ids=position_ids,
            use_cache=False,
        ).last_hidden_state
        logits = self.language.lm_head(hidden[:, :-1]).float()
        return functional.cross_entropy(
            logits.flatten(0, 1),
            labels[:, 1:].flatten(),
            reduction="sum",
        )

    def save_pretrained(
        self, folder: Path, state_dict: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        """Write `config.json` and `model.safetensors`; `state_dict` stands in for sharded weights.

        The caller makes the folder appear whole.
        """
        weights = self.state_dict() if state_dict is None else state_dict
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()},
            folder / WEIGHTS_NAME,
            metadata={"format": "pt"},
        )
        write_json_atomic(folder / "config.json", self.config.to_json())

    @classmethod
    def from_pretrained(cls, folder: Path) -> SmallVLM:
        """The model that `save_pretrained` wrote.

        Raises:
            StageConfigError: `folder` holds no model of this type, or other weights than it names.
        """
        model = cls(read_model_config(folder))
        try:
            model.load_state_dict(load_file(folder / WEIGHTS_NAME))
        except (OSError, RuntimeError) as error:
            message = f"model folder {folder}: {WEIGHTS_NAME} does not fit config.json: {error}"
            raise StageConfigError(message) from error
        return model


def read_model_config(folder: Path) -> SmallVLMConfig:
    """The sizes of the model in a folder, without its weights.

    Raises:
        StageConfigError: `folder` holds no model of this type.
    """
    try:
        values = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        message = f"model folder {folder}: no readable config.json ({error})"
        raise StageConfigError(message) from error
    if values.get("model_type") != MODEL_TYPE:
        message = (
            f"model folder {folder}: model_type is {values.get('model_type')!r}, "
            f"`type: {MODEL_TYPE}` needs {MODEL_TYPE!r}"
        )
        raise StageConfigError(message)
    return SmallVLMConfig.from_json(values)
