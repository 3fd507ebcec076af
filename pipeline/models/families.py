"""Families of Hugging Face models that can be trained: their image inputs and their parts.

The `model_type` of config.json selects the family. Types that are not in the table are refused:
a layout turns the stored pixels into a vision tower's input, and a wrong layout would train
without an error.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import cache_utils

from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.models.data_facts import DataFacts
from pipeline.models.image_features.glm_patches import encode_glm_patches
from pipeline.models.image_features.padded_images import encode_padded_images
from pipeline.models.image_features.pixtral_pictures import encode_pixtral_pictures
from pipeline.models.image_features.whole_tiles import encode_tiles
from pipeline.models.layouts.image_layout import ImageLayout
from pipeline.models.layouts.native_patches import NativePatches
from pipeline.models.layouts.padded_patches import PaddedPatches
from pipeline.models.layouts.padded_pictures import PaddedPictures
from pipeline.models.layouts.raster_patches import RasterPatches
from pipeline.models.layouts.tiles import AnyresTiles, StackedImages, TilesInOneRow
from pipeline.models.layouts.tower_arguments import (
    FollowFromGrids,
    lengths_and_places,
    places_in_pixels,
    raster_places,
    with_bicubic_places,
    with_learned_places,
    with_windows,
)
from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.formats.processors.model_types import ImageKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Models that differ only in sizes."""

    image_kind: ImageKind
    """Kind of data sets that it takes."""
    make_layout: Callable[[Any, DataFacts], ImageLayout]
    """Maps the model's config and the data set to the layout."""
    projector: tuple[str, ...]
    """Prefixes of parameter names; they may be within the vision tower."""
    has_feature_layer: bool = False
    """True if `vision_feature_layer` may leave the last layers of the vision tower unused."""
    ties_by_text_config: bool = False
    """True if config.json may leave `tie_word_embeddings` to its `text_config`."""
    image_marks: str = ""
    """Name of the argument by which generation learns which tokens are images; empty if it needs
    none."""
    find_block_layers: Callable[[Any], frozenset[str]] | None = None
    """Maps the language model's config to `VisionLanguageModel.block_layers`; None: none."""
    unused_modules: tuple[str, ...] = ()
    """Prefixes of the names of parameters that images and text do not use."""
    language_inputs: Callable[[Any, torch.Tensor], Mapping[str, torch.Tensor]] | None = None
    """Maps the model of transformers and int64 [num_rows, length] token ids to further arguments
    of the language model."""
    caps_logits: bool = False
    """True if logits are limited by `final_logit_softcapping` of the language model's config."""
    why_vision_not_compiled: str = ""
    """Reason why layers of the vision tower cannot be compiled; empty if they can."""
    follow_from_grids: FollowFromGrids | None = None
    """For images of varying size: computes further arguments of the vision tower."""
    encode_images: Callable[..., Any] | None = None
    """Called instead of transformers' `get_image_features`, with the model and its arguments."""


def _size(facts: DataFacts) -> tuple[int, int]:
    assert facts.info.image_height is not None  # of a `fixed` or `tiled` data set
    assert facts.info.image_width is not None
    return facts.info.image_height, facts.info.image_width


def _stacked(_config: Any, facts: DataFacts) -> StackedImages:
    return StackedImages(scale=facts.pixel_scale, size=_size(facts))


def _gemma3(config: Any, facts: DataFacts) -> StackedImages:
    if config.get_text_config().use_bidirectional_attention:
        message = (
            "use_bidirectional_attention is true in config.json: each token of this model sees "
            "all others, as in a model for embeddings, so it cannot learn to write"
        )
        raise StageConfigError(message)
    return _stacked(config, facts)


def _all_layers(_text_config: Any) -> frozenset[str]:
    return frozenset({"full_attention", "sliding_attention"})


def _shuffled_tiles(config: Any, facts: DataFacts) -> StackedImages:
    """Check that the features of a tile form a square, which InternVL folds into a smaller one."""
    vision = config.vision_config
    needs: dict[str, tuple[Any, Any]] = {
        "vision_feature_layer": (config.vision_feature_layer, -1),
        "vision_feature_select_strategy": (config.vision_feature_select_strategy, "default"),
        "vision_config.use_mask_token": (vision.use_mask_token, False),
        "width in vision_config.image_size": (vision.image_size[1], vision.image_size[0]),
        "width in vision_config.patch_size": (vision.patch_size[1], vision.patch_size[0]),
    }
    for name, (value, needed) in needs.items():
        if value != needed:
            message = (
                f"config.json: {name} is {value!r}, but a model of type internvl can only be "
                f"trained with {needed!r}"
            )
            raise StageConfigError(message)
    return _stacked(config, facts)


def _gemma4(config: Any, facts: DataFacts) -> PaddedPatches:
    text = config.get_text_config()
    if text.use_bidirectional_attention == "all" or text.enable_moe_block:
        cause = (
            "enable_moe_block is true in config.json: experts cannot be trained here"
            if text.enable_moe_block
            else "use_bidirectional_attention is 'all' in config.json: each token of this model "
            "sees all others, as in a model for embeddings, so it cannot learn to write"
        )
        raise StageConfigError(cause)
    if text.num_kv_shared_layers and not hasattr(cache_utils, "KVSharingDict"):
        message = (
            "layers of this model share keys, which this version of transformers "
            f"({transformers.__version__}) loses if the layers are sharded: install 5.23 or later"
        )
        raise StageConfigError(message)
    assert facts.info.patch_size is not None  # of a `native` data set
    assert facts.info.merge_size is not None
    return PaddedPatches(
        scale=facts.pixel_scale,
        patch_size=facts.info.patch_size,
        merge_size=facts.info.merge_size,
    )


def _gemma4_block_layers(text_config: Any) -> frozenset[str]:
    """Return the kinds of layers in which all tokens of an image see each other."""
    sees_ahead = text_config.use_bidirectional_attention == "vision"
    return frozenset({"sliding_attention"}) if sees_ahead else frozenset()


def _per_layer_inputs(hf: Any, input_ids: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """Return the embeddings of each layer; those of image tokens are those of padding."""
    text = hf.config.get_text_config()
    if not text.hidden_size_per_layer_input:
        return {}
    is_image = input_ids == hf.config.image_token_id
    words = input_ids.masked_fill(is_image, text.pad_token_id)
    return {"per_layer_inputs": hf.get_decoder().get_per_layer_inputs(words)}


def _one_row(_config: Any, facts: DataFacts) -> TilesInOneRow:
    if not all(facts.info.image_mean):
        message = (
            "the processor's image_mean is 0 in a channel: this model drops tiles that are 0 "
            "throughout after normalisation, which would include a black picture's; preprocess "
            "with the model's own processor"
        )
        raise StageConfigError(message)
    return TilesInOneRow(scale=facts.pixel_scale, size=_size(facts))


def _anyres(config: Any, facts: DataFacts) -> AnyresTiles:
    height, width = min(config.image_grid_pinpoints, key=lambda grid: grid[0] * grid[1])
    return AnyresTiles(scale=facts.pixel_scale, size=_size(facts), smallest_grid=(height, width))


def _anyres_alone(config: Any, facts: DataFacts) -> AnyresTiles:
    """Return the layout of LLaVA-OneVision, in which only a sample's single picture has tiles."""
    return dataclasses.replace(_anyres(config, facts), counts_pictures=True)


def _mistral3(config: Any, facts: DataFacts) -> PaddedPictures:
    layer = config.vision_feature_layer
    if layer not in (-1, [-1]):
        message = (
            f"config.json: vision_feature_layer is {layer!r}, but a model of type mistral3 can "
            "only be trained with -1, the last layer"
        )
        raise StageConfigError(message)
    return _padded_pictures(config, facts)


def _padded_pictures(_config: Any, facts: DataFacts) -> PaddedPictures:
    assert facts.info.patch_size is not None  # of a `native` data set
    assert facts.info.merge_size is not None
    token_side = facts.info.patch_size * facts.info.merge_size
    return PaddedPictures(scale=facts.pixel_scale, token_side=token_side)


def _native(
    _config: Any, facts: DataFacts, kind: type[NativePatches] = NativePatches
) -> NativePatches:
    info = facts.info
    assert info.patch_size is not None  # of a `native` data set
    assert info.merge_size is not None
    assert info.temporal_patch_size is not None
    return kind(
        scale=facts.pixel_scale,
        patch_size=info.patch_size,
        merge_size=info.merge_size,
        temporal_patch_size=info.temporal_patch_size,
        image_token_id=info.image_token_id,
    )


_RETURNS_INTERMEDIATE = "its layers also return intermediate results"
_BY_PICTURE = (
    "without varlen attention its layers attend image by image, those of one size at once, so "
    "that each new number of sizes would be compiled again"
)

_LLAVA_PROJECTOR = ("model.multi_modal_projector.",)
_QWEN_MERGER = ("model.visual.merger.",)
_IDEFICS3 = Family(
    image_kind="tiled",
    make_layout=_one_row,
    projector=("model.connector.",),
    encode_images=encode_tiles,
)
_QWEN2_VL = Family(
    image_kind="native",
    make_layout=_native,
    projector=_QWEN_MERGER,
    image_marks="mm_token_type_ids",
    why_vision_not_compiled=_BY_PICTURE,
    follow_from_grids=lengths_and_places,
)
_QWEN3_VL = dataclasses.replace(
    _QWEN2_VL,
    projector=(*_QWEN_MERGER, "model.visual.deepstack_merger_list."),
    follow_from_grids=with_learned_places,
)
_GLM_OCR = dataclasses.replace(
    _QWEN2_VL,
    projector=(*_QWEN_MERGER, "model.visual.downsample."),
    encode_images=encode_glm_patches,
)
_GLM4V = dataclasses.replace(_GLM_OCR, follow_from_grids=with_bicubic_places)
_LIGHTON_OCR = Family(
    image_kind="native",
    make_layout=_padded_pictures,
    projector=("model.vision_projection.",),
    why_vision_not_compiled=_BY_PICTURE,
    follow_from_grids=places_in_pixels,
    encode_images=functools.partial(
        encode_pixtral_pictures, tower="vision_encoder", projector="vision_projection"
    ),
)
_QWEN3_5 = dataclasses.replace(_QWEN2_VL, follow_from_grids=with_learned_places)

FAMILIES: Mapping[str, Family] = {
    "gemma3": Family(
        image_kind="fixed",
        make_layout=_gemma3,
        projector=_LLAVA_PROJECTOR,
        image_marks="token_type_ids",
        find_block_layers=_all_layers,
    ),
    "llava": Family(
        image_kind="fixed",
        make_layout=_stacked,
        projector=_LLAVA_PROJECTOR,
        has_feature_layer=True,
        why_vision_not_compiled=_RETURNS_INTERMEDIATE,
    ),
    "llava_next": Family(
        image_kind="tiled",
        make_layout=_anyres,
        projector=(*_LLAVA_PROJECTOR, "model.image_newline"),
        has_feature_layer=True,
        why_vision_not_compiled=_RETURNS_INTERMEDIATE,
    ),
    "llava_onevision": Family(
        image_kind="tiled",
        make_layout=_anyres_alone,
        projector=(*_LLAVA_PROJECTOR, "model.image_newline"),
        has_feature_layer=True,
        why_vision_not_compiled=_RETURNS_INTERMEDIATE,
    ),
    "gemma4": Family(
        image_kind="native",
        make_layout=_gemma4,
        projector=("model.embed_vision.",),
        image_marks="mm_token_type_ids",
        find_block_layers=_gemma4_block_layers,
        unused_modules=("model.audio_tower.", "model.embed_audio."),
        language_inputs=_per_layer_inputs,
        caps_logits=True,
        encode_images=encode_padded_images,
    ),
    "glm46v": _GLM4V,
    "glm4v": _GLM4V,
    "glm_ocr": _GLM_OCR,
    "idefics3": _IDEFICS3,
    "internvl": Family(
        image_kind="tiled",
        make_layout=_shuffled_tiles,
        projector=_LLAVA_PROJECTOR,
        ties_by_text_config=True,
        why_vision_not_compiled=_RETURNS_INTERMEDIATE,
    ),
    "lighton_ocr": _LIGHTON_OCR,
    "mistral3": dataclasses.replace(
        _LIGHTON_OCR,
        ties_by_text_config=True,
        make_layout=_mistral3,
        projector=_LLAVA_PROJECTOR,
        encode_images=functools.partial(
            encode_pixtral_pictures, tower="vision_tower", projector="multi_modal_projector"
        ),
    ),
    "smolvlm": _IDEFICS3,
    "paddleocr_vl": dataclasses.replace(
        _QWEN2_VL,
        make_layout=functools.partial(_native, kind=RasterPatches),
        projector=("model.projector.",),
        follow_from_grids=raster_places,
    ),
    "qwen2_vl": _QWEN2_VL,
    "qwen2_5_vl": dataclasses.replace(_QWEN2_VL, follow_from_grids=with_windows),
    "qwen3_vl": _QWEN3_VL,
    "qwen3_vl_moe": _QWEN3_VL,
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5,
}
"""Families by `model_type`."""


def find_family(model_type: str, where: str) -> Family:
    """Return the family of a model; `where` names its folder.

    Raises:
        StageConfigError: there is no such family.
    """
    family = FAMILIES.get(model_type)
    if family is None:
        message = (
            f"{where}: model_type {model_type!r} cannot be trained; supported are "
            f"{', '.join(sorted(FAMILIES))}, and small_vlm with `type: small_vlm`"
        )
        raise StageDataError(message)
    return family


def check_image_kind(family: Family, model_type: str, info: DatasetInfo) -> None:
    """Compare the image kind of the data set with the family's.

    Raises:
        StageConfigError: they differ.
    """
    if info.image_kind != family.image_kind:
        message = (
            f"the data set's images are {info.image_kind}, but a model of type {model_type} "
            f"needs {family.image_kind} ones; preprocess with the model's own processor"
        )
        raise StageConfigError(message)
