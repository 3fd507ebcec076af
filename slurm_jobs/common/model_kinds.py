"""Which models can be trained, by what their config.json says: `check` and the loader agree on it.

The families of whole models are told in `pipeline.models.families`; here are their names alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODEL_CONFIG = "config.json"

SMALL_VLM = "small_vlm"
"""`model_type` of the model that is built here, in the folder that a training exports."""

WHOLE_TYPES = (
    *("idefics3", "llava", "llava_next"),
    *("qwen2_5_vl", "qwen2_vl", "qwen3_vl", "smolvlm"),
)
"""`model_type` of the image-text-to-text models of transformers that can be trained."""

_FLEXIBLE = (
    "; this is a SigLIP 2 of flexible resolution (NaFlex), which takes images in another layout"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartKind:
    """What a folder must hold to be a part of a `small_vlm`."""

    name: str
    """Of the part, in `model` of a training's config."""
    model_types: tuple[str, ...]
    words: str


VISION_PART = PartKind(
    name="vision",
    model_types=("siglip", "siglip_vision_model"),
    words="a SigLIP or fixed-resolution SigLIP 2 (model_type siglip or siglip_vision_model)",
)
LANGUAGE_PART = PartKind(
    name="language",
    model_types=("qwen2",),
    words="a Qwen2 or Qwen2.5 causal language model (model_type qwen2)",
)


def wrong_part(values: Mapping[str, Any], part: PartKind) -> str:
    """Why a model is not this part, or has packed weights, which could not be trained.

    Args:
        values: Of its config.json.
        part: What it is to be.

    Returns: Empty if nothing speaks against it.
    """
    kind = values.get("model_type")
    if kind not in part.model_types:
        more = _FLEXIBLE if str(kind).startswith("siglip2") else ""
        return f"model_type is {kind!r}, expected {part.words}{more}"
    if values.get("quantization_config") is not None:
        return "its weights are quantised (quantization_config); take the plain model"
    return ""
