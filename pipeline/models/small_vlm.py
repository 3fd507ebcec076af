"""Built-in small vision-language model: SigLIP encoder, MLP projector, Qwen2 decoder.

Its architecture is LLaVA's (arXiv:2304.08485): each image token of the text is replaced by the
projected embedding of one patch. It is small enough to learn a real task on two CPU cores, and
has the same parts as the large models.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    DynamicCache,
    Qwen2Config,
    Qwen2ForCausalLM,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from pipeline.models.attention_kernels.packed_rows import Packing, attention_arguments
from pipeline.models.generation import Prompt, arrange_prompts, before, pad_left
from pipeline.models.image_tokens import find_places, put_features, zero_of
from pipeline.models.layouts.image_layout import ImageLayout, VisionInputs
from pipeline.models.layouts.pixel_scale import PixelScale
from pipeline.models.layouts.tiles import StackedImages
from pipeline.models.position_limits import max_positions
from pipeline.models.tied_weights import without_tied
from pipeline.models.vision_language import HEADS_PREFIX, TowerSizes, VisionLanguageModel
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.processors.model_types import SMALL_VLM

MODEL_TYPE = SMALL_VLM
WEIGHTS_NAME = "model.safetensors"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SmallVLMConfig:
    """Content of `config.json`: enough to build the model and to prepare its input."""

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
        """Tokens of one image in the text: one per patch."""
        return (self.vision["image_size"] // self.vision["patch_size"]) ** 2

    def to_json(self) -> dict[str, Any]:
        """Return the content of `config.json`."""
        return {
            "model_type": MODEL_TYPE,
            "architectures": ["SmallVLM"],
            **dataclasses.asdict(self),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SmallVLMConfig:
        """Return the config from the values of `to_json`."""
        return cls(
            vision=values["vision"],
            language=values["language"],
            image_token_id=values["image_token_id"],
            pad_token_id=values["pad_token_id"],
            image_mean=tuple(values["image_mean"]),
            image_std=tuple(values["image_std"]),
        )


class SmallVLM(VisionLanguageModel):
    """Model from images and text to loss or text."""

    def __init__(
        self,
        config: SmallVLMConfig,
        *,
        vision: SiglipVisionModel | None = None,
        language: Qwen2ForCausalLM | None = None,
    ) -> None:
        """Create it; missing parts get random weights, given parts must match `config`."""
        super().__init__()
        self.config = config
        self.vision = _make_vision(config) if vision is None else vision
        from_width, width = config.vision["hidden_size"], config.language["hidden_size"]
        self.projector = nn.Sequential(
            nn.Linear(from_width, width), nn.GELU(), nn.Linear(width, width)
        )
        self.language = _make_language(config) if language is None else language
        side = config.vision["image_size"]
        scale = PixelScale(mean=config.image_mean, std=config.image_std)
        self.layout: ImageLayout = StackedImages(scale=scale, size=(side, side))

    @property
    def text_config(self) -> Any:
        """Config of transformers for the language model."""
        return self.language.config

    def towers(self) -> list[list[nn.Module]]:
        """Implement `VisionLanguageModel.towers`."""
        return [list(self.vision.encoder.layers), list(self.language.model.layers)]

    def part_prefixes(self) -> Mapping[Literal["projector", "vision"], tuple[str, ...]]:
        """Implement `VisionLanguageModel.part_prefixes`."""
        return {"projector": ("projector.",), "vision": ("vision.",)}

    def sizes(self) -> tuple[TowerSizes, TowerSizes]:
        """Implement `VisionLanguageModel.sizes`."""
        return tower_sizes(self.config)

    @property
    def max_positions(self) -> int | None:
        """Limit of `VisionLanguageModel.max_positions`."""
        return max_positions(self.language.config)

    @property
    def patch_size(self) -> int:
        """Side of a patch in pixels."""
        return int(self.config.vision["patch_size"])

    def embed(
        self,
        input_ids: torch.Tensor,
        vision: VisionInputs,
        image_places: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return token embeddings with image tokens replaced by projected patches, in order.

        Args:
            input_ids: int64 [batch, tokens].
            vision: `pixel_values` [num_images, 3, height, width], or empty.
            image_places: See `VisionLanguageModel.forward`.

        Returns:
            Float [batch, tokens, hidden], and a zero that depends on unused parts.
        """
        text = self.language.model.embed_tokens(input_ids)
        zero = torch.zeros((), device=input_ids.device)
        if vision:
            if image_places is None:
                image_places = find_places(input_ids, self.config.image_token_id)
            patches = self._project(vision).flatten(0, 1)
            return put_features(text, patches, image_places), zero
        if not self.training:
            return text, zero
        # A rank without an image must still enter the collectives of the vision tower, and give
        # its parameters a (zero) gradient.
        smallest = self.layout.smallest(input_ids.device, text.dtype)
        zero = zero + zero_of(self._project(smallest))
        # The input of the layers has a gradient where images do: see `VisionLanguageModel`.
        return text + zero.to(text.dtype), zero

    def _project(self, vision: VisionInputs) -> torch.Tensor:
        """Return float [num_images, patches, hidden of the language model]."""
        projected: torch.Tensor = self.projector(self.vision(**vision).last_hidden_state)
        return projected

    def hidden_states(
        self,
        input_ids: torch.Tensor,
        vision: VisionInputs,
        position_ids: torch.Tensor | None,
        packing: Packing | None = None,
        image_places: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Implement `VisionLanguageModel.hidden_states`."""
        embeds, unused = self.embed(input_ids, vision, image_places)
        # SYNC: without `packing` transformers checks whether rows are packed.
        hidden = self.language.model(
            inputs_embeds=embeds,
            **attention_arguments(
                packing, self.language.config, input_ids, uses_varlen=self.uses_varlen
            ),
            position_ids=position_ids,
            use_cache=False,
        ).last_hidden_state
        return hidden, unused

    def output_head(self) -> nn.Module:
        """Implement `VisionLanguageModel.output_head`."""
        return self.language.lm_head

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Prompt], *, max_new_tokens: int) -> list[list[int]]:
        """Implement `VisionLanguageModel.generate`, with a key-value cache."""
        device, dtype = self.language.lm_head.weight.device, self.language.lm_head.weight.dtype
        end_id = cast("int", self.language.config.eos_token_id)  # of `language_values`
        input_ids, mask = pad_left(prompts, self.config.pad_token_id, device)
        embeds, _ = self.embed(input_ids, arrange_prompts(prompts, self.layout, device, dtype))
        # Padding is on the left: positions count from the first token of each prompt.
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache(config=self.language.config)
        new_tokens = []
        finished = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        for _ in range(max_new_tokens):
            logits = self.language(
                inputs_embeds=embeds,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            next_tokens = logits.argmax(-1).masked_fill(finished, end_id)
            new_tokens.append(next_tokens)
            finished |= next_tokens == end_id
            if bool(finished.all()):  # SYNC: the host decides whether to continue
                break
            embeds = self.language.model.embed_tokens(next_tokens.unsqueeze(-1))
            mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=-1)
            positions = positions[:, -1:] + 1
        answers = torch.stack(new_tokens, dim=-1).tolist()  # SYNC: the answers come to the host
        return [before(answer, end_id) for answer in answers]

    def save_pretrained(
        self, folder: Path, weights: Mapping[str, torch.Tensor] | None = None
    ) -> Mapping[str, torch.Tensor]:
        """Write `config.json` and `model.safetensors`.

        An output head that is tied to the token embeddings is written once, under their name.
        """
        state = self.state_dict() if weights is None else weights
        whole = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in without_tied(state, self.tied_weights()).items()
            if not name.startswith(HEADS_PREFIX)
        }
        save_file(whole, folder / WEIGHTS_NAME, metadata={"format": "pt"})
        write_json_atomic(folder / "config.json", self.config.to_json())
        return whole

    def tied_weights(self) -> Mapping[str, str]:
        """Implement `VisionLanguageModel.tied_weights`."""
        tied = self.language.all_tied_weights_keys
        return {f"language.{name}": f"language.{target}" for name, target in tied.items()}

    @classmethod
    def from_pretrained(cls, folder: Path) -> SmallVLM:
        """Load the model that `save_pretrained` wrote.

        Raises:
            StageConfigError: `folder` contains no model of this type, or its weights do not
                fit.
        """
        model = cls(read_model_config(folder))
        try:
            weights = load_file(folder / WEIGHTS_NAME)
            for tied_name, written_name in model.tied_weights().items():
                if tied_name not in weights and written_name in weights:
                    weights[tied_name] = weights[written_name]
            model.load_state_dict(weights)
        except (OSError, RuntimeError, SafetensorError) as error:
            message = f"model folder {folder}: {WEIGHTS_NAME} does not fit config.json: {error}"
            raise StageConfigError(message) from error
        return model


def _make_vision(config: SmallVLMConfig) -> SiglipVisionModel:
    # Without SigLIP's pooling head: its output is never used, and a parameter without a gradient
    # has no place in an optimizer.
    return SiglipVisionModel(SiglipVisionConfig(**config.vision, vision_use_head=False))


def _make_language(config: SmallVLMConfig) -> Qwen2ForCausalLM:
    # Earlier folders do not state whether the head is tied; theirs is not.
    return Qwen2ForCausalLM(Qwen2Config(**{"tie_word_embeddings": False, **config.language}))


def tower_sizes(config: SmallVLMConfig) -> tuple[TowerSizes, TowerSizes]:
    """Return the sizes of the vision tower and of the language model."""
    return _tower_size(config.vision), _tower_size(config.language)


def _tower_size(tower: Mapping[str, Any]) -> TowerSizes:
    return TowerSizes(hidden_size=tower["hidden_size"], num_layers=tower["num_hidden_layers"])


def read_model_config(folder: Path) -> SmallVLMConfig:
    """Read the sizes of the model in a folder, without its weights.

    Raises:
        StageConfigError: `folder` contains no model of this type.
    """
    try:
        values = json.loads(read_bytes(folder / "config.json"))
    except (OSError, ValueError) as error:
        message = f"model folder {folder}: no readable config.json ({error})"
        raise StageConfigError(message) from error
    if not isinstance(values, dict):
        message = f"model folder {folder}: config.json holds no mapping"
        raise StageConfigError(message)
    if values.get("model_type") != MODEL_TYPE:
        message = (
            f"model folder {folder}: model_type is {values.get('model_type')!r}, "
            f"`type: {MODEL_TYPE}` needs {MODEL_TYPE!r}"
        )
        raise StageConfigError(message)
    try:
        return SmallVLMConfig.from_json(values)
    except (KeyError, TypeError) as error:
        message = f"model folder {folder}: config.json is damaged ({error!r}); copy the model again"
        raise StageConfigError(message) from error
