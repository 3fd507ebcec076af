"""Types of models that can be trained, by their config.json, for `check` and the loader.

Details of the families of whole models are in `pipeline.models.families`; this file has only
their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MODEL_CONFIG = "config.json"

SMALL_VLM = "small_vlm"
"""`model_type` of the model that is built here, in the folder that a training exports."""

ImageKind = Literal["fixed", "tiled", "native"]
"""Storage of pictures. `fixed`: each became one array of one size. `tiled`: one or several of one
size. `native`: one, of its own size."""

TAKEN_IMAGES: Mapping[str, ImageKind] = {
    "gemma3": "fixed",
    "gemma4": "native",
    "glm46v": "native",
    "glm4v": "native",
    "glm_ocr": "native",
    "idefics3": "tiled",
    "internvl": "tiled",
    "llava": "fixed",
    "llava_next": "tiled",
    "llava_onevision": "tiled",
    "lighton_ocr": "native",
    "mistral3": "native",
    "paddleocr_vl": "native",
    "qwen2_5_vl": "native",
    "qwen2_vl": "native",
    "qwen3_5": "native",
    "qwen3_5_moe": "native",
    "qwen3_vl": "native",
    "qwen3_vl_moe": "native",
    "smolvlm": "tiled",
}
"""Kinds of images that a whole model takes, by `model_type`."""
SMALL_VLM_IMAGES: ImageKind = "fixed"
"""Kinds of images that a `small_vlm` takes."""

WHOLE_TYPES = tuple(TAKEN_IMAGES)
"""`model_type` of the image-text-to-text models of transformers that can be trained."""

_DENSE_LANGUAGE_TYPES = ("llama", "qwen2", "qwen3")

LANGUAGE_TYPES: Mapping[str, tuple[str, ...]] = {
    "internvl": _DENSE_LANGUAGE_TYPES,
    "lighton_ocr": _DENSE_LANGUAGE_TYPES,
    "llava_onevision": _DENSE_LANGUAGE_TYPES,
    "mistral3": ("mistral", "ministral3"),
}
"""`model_type` of the language models within whole models of a type; others take any."""

_FORM_OF_OTHER_CODE: Mapping[str, str] = {
    "internvl_chat": "take the repository whose name ends in -HF",
}
"""Remedy for models in the form of code that is not part of transformers, by `model_type`."""

_NOT_TRAINED: Mapping[str, str] = {
    "paligemma": "it has no chat template, and each token of a question sees all others, so that "
    "its rows need another mask than those of a conversation: take Gemma 3 or Gemma 4",
}
"""Reason, with the remedy, why a model of transformers cannot be trained, by `model_type`."""

MADE_IMAGES: Mapping[str, ImageKind] = {
    "CLIPImageProcessor": "fixed",
    "Gemma3ImageProcessor": "fixed",
    "Glm46VImageProcessor": "native",
    "Glm4vImageProcessor": "native",
    "GotOcr2ImageProcessor": "tiled",
    "Gemma4ImageProcessor": "native",
    "Idefics3ImageProcessor": "tiled",
    "LlavaImageProcessor": "fixed",
    "LlavaNextImageProcessor": "tiled",
    "LlavaOnevisionImageProcessor": "tiled",
    "PaddleOCRVLImageProcessor": "native",
    "PixtralImageProcessor": "native",
    "Qwen2VLImageProcessor": "native",
    "SiglipImageProcessor": "fixed",
    "SmolVLMImageProcessor": "tiled",
    "ViTImageProcessor": "fixed",
}
"""Kind of images that a processor makes, by its class name in `image_processor_class`."""

_FLEXIBLE = (
    "; this is a SigLIP 2 of flexible resolution (NaFlex), which takes images in another layout"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartKind:
    """Requirements of a folder for one part of a `small_vlm`."""

    name: str
    """Name of the part in `model` of a training's config."""
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


def wrong_part(values: Mapping[str, Any], part: PartKind) -> str | None:
    """Return why a model with this config.json cannot be a part; None if it can.

    Packed weights cannot be trained.
    """
    kind = values.get("model_type")
    if kind not in part.model_types:
        more = _FLEXIBLE if str(kind).startswith("siglip2") else ""
        return f"model_type is {kind!r}, expected {part.words}{more}"
    if values.get("quantization_config") is not None:
        return "its weights are quantised (quantization_config); take the plain model"
    return None


def wrong_whole_model(values: Mapping[str, Any]) -> str | None:
    """Return why a model with this config.json cannot be trained whole, with the remedy.

    None if it can, or if its type is not known here.
    """
    kind = str(values.get("model_type"))
    if kind in _FORM_OF_OTHER_CODE:
        return (
            f"model_type is {kind!r}, a form of the model that only its own code can load: "
            f"{_FORM_OF_OTHER_CODE[kind]}"
        )
    if kind in _NOT_TRAINED:
        return f"model_type is {kind!r}, which cannot be trained: {_NOT_TRAINED[kind]}"
    vision_config = values.get("vision_config")
    vision = vision_config.get("model_type") if isinstance(vision_config, Mapping) else None
    if kind == "llava" and vision == "pixtral":
        return (
            "its vision tower is that of Pixtral, which takes images of their own size, and a "
            "LLaVA can only be trained with images of one size: take a Mistral 3 (model_type "
            "mistral3), which has the same tower, or a LLaVA with CLIP or SigLIP"
        )
    text_config = values.get("text_config")
    if kind not in LANGUAGE_TYPES or not isinstance(text_config, Mapping):
        return None
    language = text_config.get("model_type")
    if language is None or language in LANGUAGE_TYPES[kind]:
        return None
    return (
        f"its language model is of type {language!r}, which cannot be trained within a model of "
        f"type {kind}; take one with {' or '.join(LANGUAGE_TYPES[kind])}"
    )


def image_processor_class(images: Mapping[str, Any]) -> str:
    """Return the class name without the back end's `Fast` or `Pil`; older files use another key."""
    extractor = str(images.get("feature_extractor_type", ""))
    older = extractor.replace("FeatureExtractor", "ImageProcessor")
    name = str(images.get("image_processor_type") or older)
    return name.removesuffix("Fast").removesuffix("Pil")
