"""Limits of a user on the pixels of resized images, instead of a processor's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_jobs.formats.configs.stages import ImagePixels
from slurm_jobs.formats.processors.class_defaults import CLASS_DEFAULTS
from slurm_jobs.formats.processors.model_types import MADE_IMAGES, image_processor_class

_SIZE_KEYS: Mapping[str, str] = {
    "CLIPImageProcessor": "size and crop_size, one size for all images",
    "Gemma3ImageProcessor": "size, one size for all images",
    "GotOcr2ImageProcessor": "max_patches, the most tiles of an image, and size of its tiles",
    "Gemma4ImageProcessor": "max_soft_tokens, the most tokens of an image",
    "Idefics3ImageProcessor": "size.longest_edge, and max_image_size.longest_edge for its tiles",
    "LlavaImageProcessor": "size and crop_size, one size for all images",
    "LlavaNextImageProcessor": "image_grid_pinpoints, a list of grids of tiles",
    "LlavaOnevisionImageProcessor": "image_grid_pinpoints, a list of grids of tiles",
    "PixtralImageProcessor": "size.longest_edge",
    "SiglipImageProcessor": "size, one size for all images",
    "SmolVLMImageProcessor": "size.longest_edge, and max_image_size.longest_edge for its tiles",
    "ViTImageProcessor": "size, one size for all images",
}
"""Keys by which a class of image processors limits images."""
_COUNTED_IN_TIME = frozenset({"Glm46VImageProcessor", "Glm4vImageProcessor"})
"""Classes whose sizes count each pixel as often as an image is repeated in time."""


class PixelLimitsError(ValueError):
    """Limits that do not fit this processor."""


def with_image_pixels(images: Mapping[str, Any], pixels: ImagePixels) -> dict[str, Any]:
    """Return the values of an image processor with these limits.

    transformers 5 reads `size`. Its older versions and other programs read `min_pixels` and
    `max_pixels`, which have priority over `size`.

    Raises:
        PixelLimitsError: the processor has no such limits, or they leave no size for an image.
    """
    name = image_processor_class(images)
    if name in _SIZE_KEYS or name not in MADE_IMAGES:
        limit = f"its limit is {_SIZE_KEYS[name]}" if name in _SIZE_KEYS else "it has none of these"
        message = (
            "image_pixels limits images that keep their proportions (as in Qwen-VL and GLM), and "
            f"this is a {name or 'processor of an unnamed class'}: {limit}. Leave image_pixels "
            "out; to change that limit, edit it in a copy of the folder and set "
            "`processor` to the copy"
        )
        raise PixelLimitsError(message)
    values = {**CLASS_DEFAULTS[name], **{k: v for k, v in images.items() if v is not None}}
    size = values["size"] if isinstance(values["size"], Mapping) else {}
    times = values["temporal_patch_size"] if name in _COUNTED_IN_TIME else 1
    areas = {edge: area // times for edge, area in size.items() if isinstance(area, int)}
    least = pixels.min or values.get("min_pixels") or areas.get("shortest_edge")
    most = pixels.max or values.get("max_pixels") or areas.get("longest_edge")
    side = values["patch_size"] * values["merge_size"]
    if pixels.max is not None and pixels.max < side**2:
        message = (
            f"image_pixels.max is {pixels.max}, less than one token of this processor "
            f"({side} x {side} = {side**2} pixels)"
        )
        raise PixelLimitsError(message)
    if isinstance(least, int) and isinstance(most, int) and least > most:
        message = (
            f"image_pixels.max is {most}, and the processor enlarges images to {least} pixels; "
            "set image_pixels.min, too"
            if pixels.min is None
            else f"image_pixels.min is {least}, and the processor reduces images to {most} "
            "pixels; set image_pixels.max, too"
        )
        raise PixelLimitsError(message)
    if times > 1:
        counted = {"shortest_edge": least and least * times, "longest_edge": most and most * times}
        return {**images, "size": counted}
    limits = {"min_pixels": least, "max_pixels": most}
    return {**images, **limits, "size": {"shortest_edge": least, "longest_edge": most}}
