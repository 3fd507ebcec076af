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
from typing import Any, ClassVar, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    DynamicCache,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from pipeline.data.format import DatasetInfo
from pipeline.models.layouts import DataFacts, ImageLayout, PixelScale, StackedImages, VisionInputs
from pipeline.models.loading import load_part, read_config_values
from pipeline.models.segments import Packing, attention_arguments
from pipeline.models.vision_language import (
    HEADS_PREFIX,
    Prompt,
    TowerSizes,
    VisionLanguageModel,
    arrange_prompts,
    before,
    find_places,
    max_positions,
    pad_left,
    put_features,
    without_tied,
    zero_of,
)
from slurm_jobs.shared.configs.model_parts import LanguageConfig, VisionConfig
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.files import write_json_atomic
from slurm_jobs.shared.processors.model_types import (
    LANGUAGE_PART,
    SMALL_VLM,
    VISION_PART,
    PartKind,
    wrong_part,
)
from slurm_jobs.shared.regular_files import read_bytes

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
        known = {f.name: values[f.name] for f in dataclasses.fields(cls)}
        for name in ("image_mean", "image_std"):
            known[name] = tuple(known[name])
        return cls(**known)


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
        unused = torch.zeros((), device=input_ids.device)
        if vision:
            places = image_places
            if places is None:
                places = find_places(input_ids, self.config.image_token_id)
            return put_features(text, self._project(vision).flatten(0, 1), places), unused
        if self.training:
            # A rank without an image must still enter the collectives of the vision tower, and
            # give its parameters a (zero) gradient.
            smallest = self.layout.smallest(input_ids.device, text.dtype)
            unused = unused + zero_of(self._project(smallest))
            # The input of the layers has a gradient where images do: see `VisionLanguageModel`.
            text = text + unused.to(text.dtype)
        return text, unused

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
        weight, end_id = self.language.lm_head.weight, self.language.config.eos_token_id
        padded = pad_left([prompt.input_ids for prompt in prompts], self.config.pad_token_id)
        input_ids, mask = (tensor.to(weight.device) for tensor in padded)
        vision = arrange_prompts(prompts, self.layout, weight.device, weight.dtype)
        embeds, _ = self.embed(input_ids, vision)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache(config=self.language.config)
        answers = []
        finished = torch.zeros(len(prompts), dtype=torch.bool, device=weight.device)
        for _ in range(max_new_tokens):
            logits = self.language(
                inputs_embeds=embeds,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            chosen = logits.argmax(-1).masked_fill(finished, end_id)
            answers.append(chosen)
            finished |= chosen == end_id
            if bool(finished.all()):  # SYNC: the host decides whether to continue
                break
            embeds = self.language.model.embed_tokens(chosen.unsqueeze(-1))
            mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=-1)
            positions = positions[:, -1:] + 1
        columns = torch.stack(answers, dim=-1).tolist()  # SYNC: the answers come to the host
        return [before(row, end_id) for row in columns]

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
        return {f"language.{name}": f"language.{of}" for name, of in tied.items()}

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
            written = {n: weights[of] for n, of in model.tied_weights().items() if of in weights}
            model.load_state_dict({**written, **weights})
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
    vision, language = (
        TowerSizes(hidden_size=tower["hidden_size"], num_layers=tower["num_hidden_layers"])
        for tower in (config.vision, config.language)
    )
    return vision, language


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
    if values.get("model_type") != MODEL_TYPE:
        message = (
            f"model folder {folder}: model_type is {values.get('model_type')!r}, "
            f"`type: {MODEL_TYPE}` needs {MODEL_TYPE!r}"
        )
        raise StageConfigError(message)
    return SmallVLMConfig.from_json(values)


# Parts of the small model from separate folders: a SigLIP encoder, a Qwen2 language model.
#
# Sizes are read from config.json alone, so a misfit is refused before weights are read. A learned
# position table fixes the size of images, and an embedding table the tokens. Neither is resized,
# because random new rows would pass for learned ones.


_VISION_KEY, _LANGUAGE_KEY = "model.vision.path", "model.language.path"
_RGB = 3


class _VisionTower(SiglipVisionModel):
    """Vision tower of a whole SigLIP, without warnings about its known unused parts."""

    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [
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
        raise StageConfigError(message)
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
    sizes = {
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
        places = vision_config.image_size // vision_config.patch_size
        message = (
            f"{config.path} needs images of {vision_config.image_size} x "
            f"{vision_config.image_size} pixels (its learned position table "
            f"has {places} x {places} entries), but the data set's are "
            f"{info.image_height} x {info.image_width}: preprocess with the image processor of "
            "that folder (`processor.images`), or use an encoder of that size"
        )
        raise StageConfigError(message)


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
        raise StageConfigError(message)


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
        raise StageConfigError(message)


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
    raise StageConfigError(message)
