"""The vision-language models that can be trained, by name."""

from pipeline.models.build import build_model, load_model
from pipeline.models.pixels import normalise_pixels
from pipeline.models.small_vlm import SmallVLM, SmallVLMConfig

__all__ = ["SmallVLM", "SmallVLMConfig", "build_model", "load_model", "normalise_pixels"]
