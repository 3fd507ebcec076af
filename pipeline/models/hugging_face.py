"""Image-text-to-text models of transformers, behind the interface of training.

Two ways of calling these models are wrong without an error, and are handled only here. Packed
rows need a mask, or the bounds of samples (`attention_kernels.packed_rows`); without either,
positions that restart and no cache: otherwise samples of a row see each other. And a batch
without an image must still run the vision tower, because other ranks do. A third way is only
slow: values that the host would read back from the device are computed before
(`layouts.tower_arguments`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import AutoModelForImageTextToText, GenerationConfig
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import GENERATION_CONFIG_NAME

from pipeline.models.attention_kernels.delta_net import has_delta_nets, keep_states_apart
from pipeline.models.attention_kernels.image_blocks import ImageBlocks, number_images
from pipeline.models.attention_kernels.packed_rows import (
    Packing,
    attention_arguments,
    packing_of_positions,
)
from pipeline.models.attention_kernels.pictures import attend_pictures_by_segment
from pipeline.models.computation.aligned_products import align_products
from pipeline.models.data_facts import DataFacts
from pipeline.models.families import Family
from pipeline.models.generation import Prompt, arrange_prompts, before, pad_left
from pipeline.models.image_features.whole_tiles import encode_whole_tiles
from pipeline.models.image_tokens import find_places, put_features, rows_and_columns, zero_of
from pipeline.models.layouts.image_layout import ImageLayout, VisionInputs
from pipeline.models.layouts.padded_patches import GRIDS
from pipeline.models.layouts.tower_arguments import plain_arguments, tower_arguments
from pipeline.models.position_limits import max_positions
from pipeline.models.tied_weights import without_tied
from pipeline.models.vision_language import HEADS_PREFIX, TowerSizes, VisionLanguageModel
from slurm_jobs.base.files import dump_json

_MAX_FILE_SIZE = "5GB"
_NUM_DIMENSIONS = 3
"""Of positions: time, height and width."""
_BY_CHUNK = (
    "its gated delta nets loop over samples and chunks of tokens, so that each new number of "
    "them would be compiled again"
)
_LAYER_LISTS = ("layers", "layer", "blocks")
"""Names that families use for the list of a tower's layers."""


class HuggingFaceVLM(VisionLanguageModel):
    """Model of a family in `pipeline.models.families`."""

    def __init__(self, hf: Any, family: Family, facts: DataFacts) -> None:
        """Wrap `hf`, from `AutoModelForImageTextToText`."""
        super().__init__()
        self.hf = hf
        self.family = family
        self.facts = facts
        self.layout: ImageLayout = family.make_layout(hf.config, facts)
        if family.find_block_layers is not None:
            self.block_layers = family.find_block_layers(self.text_config)
        if family.follow_from_grids is not None and self.attention_name == "sdpa":
            attend_pictures_by_segment(self.vision_tower)
        align_products(self.vision_tower)
        _restore_buffers(hf)
        if family.caps_logits:
            self.logit_cap = self.text_config.final_logit_softcapping
        if family.encode_images is not None and family.image_kind == "tiled":
            encode_whole_tiles(self.vision_tower)
        if hasattr(self.language_model, "_deepstack_process"):  # Qwen3-VL
            _add_features_by_place(self.language_model)
        if has_delta_nets(self.text_config):  # Qwen3.5
            keep_states_apart(self.language_model)
            self.why_language_not_compiled = _BY_CHUNK
        unused = {id(parameter) for parameter in _unused_parameters(hf, family)}
        self._unused = frozenset(n for n, p in self.named_parameters() if id(p) in unused)
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name not in self._unused)

    def hidden_states(
        self,
        input_ids: torch.Tensor,
        vision: VisionInputs,
        position_ids: torch.Tensor | None,
        packing: Packing | None = None,
        image_places: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Implement `VisionLanguageModel.hidden_states`."""
        unused = torch.zeros((), device=input_ids.device)
        if packing is None and has_delta_nets(self.text_config) and _may_be_packed(position_ids):
            message = "samples of a packed row would share the states of gated delta nets"
            raise ValueError(message)
        embed = self.hf.get_input_embeddings()
        embeddings = embed(input_ids)
        images: dict[str, Any] = {}
        if vision:
            output = self.image_features(vision)
            if image_places is None:
                image_places = find_places(input_ids, self.facts.info.image_token_id)
            embeddings = put_features(embeddings, _joined(output.pooler_output), image_places)
            images = _added_features(output, image_places)
        elif self.training:
            smallest = self.layout.smallest(input_ids.device, embed.weight.dtype)
            output = self.image_features(smallest)
            for features in features_of(output):
                unused = unused + zero_of(features)
            # The input of the layers has a gradient where images do: see `VisionLanguageModel`.
            embeddings = embeddings + unused.to(embeddings.dtype)
        blocks = None
        if self.block_layers and image_places is not None:
            numbers = number_images(image_places, *input_ids.shape)
            blocks = ImageBlocks(numbers=numbers, layers=self.block_layers)
            if packing is None:
                packing = packing_of_positions(position_ids, input_ids, embeddings.dtype)
        apart = attention_arguments(
            packing, self.text_config, input_ids, uses_varlen=self.uses_varlen, images=blocks
        )
        if self.family.language_inputs is not None:
            images |= self.family.language_inputs(self.hf, input_ids)
        # SYNC: without `packing`, or for a language model that may not take masks, transformers
        # checks whether rows are packed. tests/pipeline/models/test_grids.py counts it.
        hidden = self.language_model(
            inputs_embeds=embeddings, **images, **apart, position_ids=position_ids, use_cache=False
        ).last_hidden_state
        return hidden, unused

    def image_features(self, vision: VisionInputs) -> Any:
        """Return the output of the vision tower and the projector, like transformers."""
        call = tower_arguments(
            vision,
            self.family.follow_from_grids,
            self.vision_tower,
            uses_varlen=self.uses_varlen,
        )
        if self.family.encode_images is not None:
            return self.family.encode_images(self.hf.model, **call)
        return self.hf.model.get_image_features(**call, return_dict=True)

    def output_head(self) -> nn.Module:
        """Implement `VisionLanguageModel.output_head`."""
        return self.hf.get_output_embeddings()

    @property
    def why_vision_not_compiled(self) -> str:  # type: ignore[override]
        """Reason why layers of the vision tower cannot be compiled; empty if they can.

        Varlen attention is one call, whatever the sizes of images.
        """
        takes_borders = self.uses_varlen and self.family.follow_from_grids is not None
        return "" if takes_borders else self.family.why_vision_not_compiled

    @property
    def vision_tower(self) -> nn.Module:
        """Vision tower; in some families the projector is part of it."""
        return self.hf.get_encoder(modality="image")

    @property
    def language_model(self) -> nn.Module:
        """Language model without the output head."""
        return self.hf.get_decoder()

    def towers(self) -> list[list[nn.Module]]:
        """Implement `VisionLanguageModel.towers`."""
        return [_layers(self.vision_tower), _layers(self.language_model)]

    def part_prefixes(self) -> Mapping[Literal["projector", "vision"], tuple[str, ...]]:
        """Implement `VisionLanguageModel.part_prefixes`."""
        tower = self.vision_tower
        (vision,) = (name for name, module in self.named_modules() if module is tower)
        return {
            "projector": tuple(f"hf.{prefix}" for prefix in self.family.projector),
            "vision": (f"{vision}.",),
        }

    def root(self) -> nn.Module:
        """Implement `VisionLanguageModel.root`."""
        return self.hf

    def tied_weights(self) -> Mapping[str, str]:
        """Implement `VisionLanguageModel.tied_weights`."""
        tied = self.hf.all_tied_weights_keys
        return {f"hf.{name}": f"hf.{target}" for name, target in tied.items()}

    def unused_parameters(self) -> frozenset[str]:
        """Return the parameters of layers after that of features, and of other modalities."""
        return self._unused

    def sizes(self) -> tuple[TowerSizes, TowerSizes]:
        """Implement `VisionLanguageModel.sizes`."""
        text, vision = self.text_config, self.hf.config.vision_config
        width = getattr(vision, "embed_dim", vision.hidden_size)  # Qwen2-VL's is of its output
        num_layers = len(_layers(self.vision_tower))
        return (
            TowerSizes(hidden_size=width, num_layers=num_layers),
            TowerSizes(hidden_size=text.hidden_size, num_layers=text.num_hidden_layers),
        )

    @property
    def max_positions(self) -> int | None:
        """Limit of `VisionLanguageModel.max_positions`."""
        return max_positions(self.text_config)

    @property
    def patch_size(self) -> int:
        """Side of a patch in pixels."""
        return square_side(self.hf.config.vision_config.patch_size)

    @property
    def text_config(self) -> Any:
        """Config of transformers for the language model."""
        return self.hf.config.get_text_config()

    @property
    def has_own_code(self) -> bool:
        """Return whether the model is code from its folder, which the spec allowed to run."""
        classes = type(self.hf).__mro__  # FSDP puts a class of its own in front
        return any(known.__module__.startswith("transformers_modules.") for known in classes)

    def save_pretrained(
        self, folder: Path, weights: Mapping[str, torch.Tensor] | None = None
    ) -> Mapping[str, torch.Tensor]:
        """Implement `VisionLanguageModel.save_pretrained`, with the original files' names."""
        with torch.device("meta"):
            shell = AutoModelForImageTextToText.from_config(
                self.hf.config, trust_remote_code=self.has_own_code
            )
        # A tied output head is the input embeddings, and is written once.
        own_weights = {}
        for name, weight in (self.state_dict() if weights is None else weights).items():
            if not name.startswith(HEADS_PREFIX):
                own_weights[name.removeprefix("hf.")] = weight
        once = without_tied(own_weights, shell.all_tied_weights_keys)
        whole = {name: value.detach().cpu() for name, value in once.items()}
        # Copies, because both functions remove what they have processed.
        shell.save_pretrained(folder, state_dict=dict(whole), max_shard_size=_MAX_FILE_SIZE)
        # As text: transformers reads contradictory settings, but refuses to save them.
        (folder / GENERATION_CONFIG_NAME).write_text(dump_json(self._settings()))
        return revert_weight_conversion(shell, dict(whole))

    def _settings(self) -> dict[str, Any]:
        """Return the weights' generation settings, changed to end where answers do."""
        settings: dict[str, Any] = json.loads(self.hf.generation_config.to_json_string())
        # Without this, releases before transformers 5 use the end token of config.json.
        settings.pop("_from_model_config", None)
        end_tokens, end_id = settings.get("eos_token_id"), self.facts.eos_token_id
        others = [token for token in _as_list(end_tokens) if token != end_id]
        return {**settings, "eos_token_id": [end_id, *others] if others else end_id}

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Prompt], *, max_new_tokens: int) -> list[list[int]]:
        """Implement `VisionLanguageModel.generate` by transformers' method.

        The weights' `generation_config.json` has no influence.
        """
        weight = self.hf.get_input_embeddings().weight
        device, dtype = weight.device, weight.dtype
        pad_id, end_id = self.facts.info.pad_token_id, self.facts.eos_token_id
        input_ids, mask = pad_left(prompts, pad_id, device)
        vision = plain_arguments(arrange_prompts(prompts, self.layout, device, dtype), device)
        vision.pop(GRIDS, None)
        if self.family.image_marks:
            vision[self.family.image_marks] = (input_ids == self.hf.config.image_token_id).int()
        settings = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_new_tokens,
            pad_token_id=pad_id,
            eos_token_id=end_id,
        )
        # Otherwise sharded models would synchronise at each token, also with idle ranks.
        with _without_own_settings(self.hf):
            generated = self.hf.generate(
                input_ids=input_ids,
                attention_mask=mask,
                generation_config=settings,
                synced_gpus=False,
                **vision,
            )
        answers = generated[:, input_ids.shape[1] :].tolist()  # SYNC: the answers come to the host
        return [before(answer, end_id) for answer in answers]


@contextmanager
def _without_own_settings(hf: Any) -> Iterator[None]:
    """Make `generate` use only its arguments; restore the model's own settings afterwards.

    transformers fills unset values of a config (beams, penalties, suppressed tokens) from the
    model's own. So answers were not the likeliest ones, and ranks whose model had no such file
    gave other answers.
    """
    settings = hf.generation_config
    hf.generation_config = GenerationConfig()
    try:
        yield
    finally:
        hf.generation_config = settings


def square_side(size: int | Sequence[int]) -> int:
    """Return the side of a square, of which a config has one side or both."""
    return size if isinstance(size, int) else size[0]


def _may_be_packed(position_ids: torch.Tensor | None) -> bool:
    """Check positions as `NativePatches.positions` makes them: packed rows have a fourth number."""
    return position_ids is not None and len(position_ids) > _NUM_DIMENSIONS


def _as_list(tokens: int | list[int] | None) -> list[int]:
    if tokens is None:
        return []
    return [tokens] if isinstance(tokens, int) else list(tokens)


def _joined(features: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the features of all images: [num_image_tokens, hidden].

    Families, and releases of transformers, return one tensor or a list of them.
    """
    if isinstance(features, torch.Tensor):
        return features.flatten(0, -2)
    return torch.cat(list(features))


def _added_features(output: Any, places: torch.Tensor) -> dict[str, Any]:
    """Return the arguments by which Qwen3-VL's language model adds features to its first layers."""
    by_layer = getattr(output, "deepstack_features", None)
    if by_layer is None:
        return {}
    features = [_joined(each) for each in by_layer]
    return {"visual_pos_masks": places, "deepstack_visual_embeds": features}


def _add_features_by_place(language: Any) -> None:
    """Make a language model take positions instead of a mask, which it would read per layer."""
    by_mask = language._deepstack_process  # noqa: SLF001 - no public way

    def add(hidden: torch.Tensor, places: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        if places.dtype == torch.bool:  # `generate` passes transformers' own mask
            by_masked: torch.Tensor = by_mask(hidden, places, features)
            return by_masked
        indices = rows_and_columns(places, hidden)
        return hidden.index_put(indices, hidden[indices] + features.to(hidden.dtype))

    language._deepstack_process = add  # noqa: SLF001


def _restore_buffers(hf: Any) -> None:
    """Keep buffers in fp32, whatever the files' precision, as they are without weights.

    All ranks must have them alike, also those that read no files. Loading rounds the factors of
    Gemma's embeddings, which are in no file.
    """
    for module in hf.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.is_floating_point():
                setattr(module, name, buffer.float())
        scale = getattr(module, "scalar_embed_scale", None)
        if scale is not None:
            module.embed_scale = torch.full((), scale, device=module.embed_scale.device)


def features_of(output: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors that a vision tower passes to the language model."""
    yield from _tensors_in([output.pooler_output, getattr(output, "deepstack_features", None)])


def _tensors_in(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif values is not None:
        for value in values:
            yield from _tensors_in(value)


def _layers(tower: nn.Module) -> list[nn.Module]:
    """Return the layers of a tower: the list of layers with the most parameters."""
    lists = [
        module
        for name, module in tower.named_modules()
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] in _LAYER_LISTS
    ]
    largest = max(lists, key=lambda layers: sum(p.numel() for p in layers.parameters()))
    return list(largest)


def _unused_parameters(hf: Any, family: Family) -> Iterator[nn.Parameter]:
    """Yield the parameters that affect no output, as those after the feature layer."""
    for name, parameter in hf.named_parameters():
        if name.startswith(family.unused_modules):
            yield parameter
    if not family.has_feature_layer:
        return
    chosen = hf.config.vision_feature_layer
    layers = _layers(hf.get_encoder(modality="image"))
    # Hidden state n is the output of layer n; 0 is the embeddings.
    numbers = [n % (len(layers) + 1) for n in ([chosen] if isinstance(chosen, int) else chosen)]
    for layer in layers[max(numbers) :]:
        yield from layer.parameters()
    for name, parameter in hf.get_encoder(modality="image").named_parameters():
        if re.search(r"(^|\.)post_layernorm\.", name):
            yield parameter
