"""Defaults of image processor classes for values that a folder lacks.

The folders on hubs contain few values: Qwen2-VL's has neither a filter nor a size. These are the
class attributes of transformers 5; a test compares them with those installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BICUBIC, _BILINEAR, _LANCZOS = 3, 2, 1
"""Pillow's numbers of the filters."""

_STEP_DEFAULTS = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "rescale_factor": 1 / 255,
}
_CENTRED = {"image_mean": (0.5, 0.5, 0.5), "image_std": (0.5, 0.5, 0.5)}
_OPENAI = {
    "image_mean": (0.48145466, 0.4578275, 0.40821073),
    "image_std": (0.26862954, 0.26130258, 0.27577711),
}
_CLIP = {
    **_STEP_DEFAULTS,
    **_OPENAI,
    "resample": _BICUBIC,
    "size": {"shortest_edge": 224},
    "default_to_square": False,
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
}
_IDEFICS_DEFAULTS = {
    **_STEP_DEFAULTS,
    **_CENTRED,
    "resample": _LANCZOS,
    "size": {"longest_edge": 4 * 364},
    "max_image_size": {"longest_edge": 364},
    "do_image_splitting": True,
}
_GLM = {
    **_STEP_DEFAULTS,
    **_OPENAI,
    "resample": _BICUBIC,
    "size": {"shortest_edge": 112 * 112, "longest_edge": 28 * 28 * 15000},
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
}
_SQUARE = {**_STEP_DEFAULTS, **_CENTRED, "size": {"height": 224, "width": 224}}

CLASS_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "CLIPImageProcessor": _CLIP,
    "Gemma3ImageProcessor": {**_SQUARE, "resample": _BILINEAR},
    "Glm46VImageProcessor": _GLM,
    "Glm4vImageProcessor": _GLM,
    "GotOcr2ImageProcessor": {
        **_STEP_DEFAULTS,
        **_OPENAI,
        "resample": _BICUBIC,
        "size": {"height": 384, "width": 384},
        "crop_to_patches": False,
        "min_patches": 1,
        "max_patches": 12,
    },
    "Gemma4ImageProcessor": {
        **_STEP_DEFAULTS,
        "do_normalize": False,
        "image_mean": (0.0, 0.0, 0.0),
        "image_std": (1.0, 1.0, 1.0),
        "resample": _BICUBIC,
        "patch_size": 16,
        "max_soft_tokens": 280,
        "pooling_kernel_size": 3,
    },
    "Idefics3ImageProcessor": _IDEFICS_DEFAULTS,
    "LlavaImageProcessor": _CLIP,
    "LlavaNextImageProcessor": {
        **_CLIP,
        "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
    },
    "LlavaOnevisionImageProcessor": {
        **_STEP_DEFAULTS,
        **_OPENAI,
        "resample": _BICUBIC,
        "size": {"height": 384, "width": 384},
        "image_grid_pinpoints": [
            [384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)
        ],
    },
    "PaddleOCRVLImageProcessor": {
        **_STEP_DEFAULTS,
        **_OPENAI,
        "resample": _BICUBIC,
        "size": {"shortest_edge": 384 * 384, "longest_edge": 1536 * 1536},
        "patch_size": 14,
        "temporal_patch_size": 1,
        "merge_size": 2,
    },
    "PixtralImageProcessor": {
        **_STEP_DEFAULTS,
        **_OPENAI,
        "resample": _BICUBIC,
        "size": {"longest_edge": 1024},
        "patch_size": {"height": 16, "width": 16},
    },
    "Qwen2VLImageProcessor": {
        **_STEP_DEFAULTS,
        **_OPENAI,
        "resample": _BICUBIC,
        "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280},
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
    },
    "SiglipImageProcessor": {**_SQUARE, "resample": _BICUBIC, "default_to_square": False},
    "SmolVLMImageProcessor": _IDEFICS_DEFAULTS,
    "ViTImageProcessor": {**_SQUARE, "resample": _BILINEAR},
}
"""Defaults by the class's name without `Fast` or `Pil`, which name back ends."""

NEUTRAL_KEYS = frozenset({
    *("image_processor_type", "feature_extractor_type", "processor_class", "auto_map"),
    *("_valid_processor_keys", "data_format", "input_data_format", "return_tensors", "device"),
    *("disable_grouping", "image_seq_length", "return_row_col_info", "default_to_square"),
    "do_convert_rgb",  # every image is RGB here
    "aspect_ratio_setting",  # of LLaVA-NeXT's first files; no processor reads it
    "video_sampling",  # of SmolVLM2
})  # fmt: skip
"""Keys that change no pixel of an image, or that the code for sizes reads."""
