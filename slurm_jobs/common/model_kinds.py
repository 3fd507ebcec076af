"""Which models can be trained, by what their config.json says: `check` and the loader agree on it.

The families of whole models are told in `pipeline.models.families`; here are their names alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MODEL_CONFIG = "config.json"

SMALL_VLM = "small_vlm"
"""`model_type` of the model that is built here, in the folder that a training exports."""

ImageKind = Literal["fixed", "tiled", "native"]
"""How pictures are stored. `fixed`: each became one array of one size. `tiled`: one or several of
one size. `native`: one, of a size of its own."""

TAKEN_IMAGES: Mapping[str, ImageKind] = {
    "idefics3": "tiled",
    "llava": "fixed",
    "llava_next": "tiled",
    "qwen2_5_vl": "native",
    "qwen2_vl": "native",
    "qwen3_vl": "native",
    "smolvlm": "tiled",
}
"""Which images a whole model takes, by `model_type`."""
SMALL_VLM_IMAGES: ImageKind = "fixed"
"""Those of a `small_vlm`."""

WHOLE_TYPES = tuple(TAKEN_IMAGES)
"""`model_type` of the image-text-to-text models of transformers that can be trained."""

MADE_IMAGES: Mapping[str, ImageKind] = {
    "CLIPImageProcessor": "fixed",
    "Idefics3ImageProcessor": "tiled",
    "LlavaImageProcessor": "fixed",
    "LlavaNextImageProcessor": "tiled",
    "Qwen2VLImageProcessor": "native",
    "SiglipImageProcessor": "fixed",
    "SmolVLMImageProcessor": "tiled",
    "ViTImageProcessor": "fixed",
}
"""Which images a processor makes, by its class as `image_processor_class` has it."""

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


def image_processor_class(images: Mapping[str, Any]) -> str:
    """The class's name without `Fast` or `Pil`, which name back ends; older files have another.

    Args:
        images: The image processor's own values.
    """
    old = str(images.get("feature_extractor_type", "")).replace(
        "FeatureExtractor", "ImageProcessor"
    )
    found = str(images.get("image_processor_type") or old)
    return found.removesuffix("Fast").removesuffix("Pil")
