"""Settings in a part that shaped its samples: equal in all parts of a data set."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifests.model import Manifest
from pipeline.preprocess.processors import hash_folder
from pipeline.preprocess.storage import LOSSY_FORMATS
from slurm_jobs.common.stage_config.preprocess import KNOWN_COLUMNS, PreprocessConfig

_DECIDE_PIXELS_AND_TOKENS = ("pillow", "simplejpeg", "tokenizers", "torch", "transformers")
"""Packages whose version affects samples; the build of a version (`+cpu`) does not matter."""


def part_settings(
    stage: PreprocessConfig, manifest: Manifest, processor_dir: Path
) -> dict[str, Any]:
    """Return all that determines the samples, except images' bytes, slices and paths."""
    settings = {
        "manifest": manifest.path.name,
        "manifest_xxh3": manifest.fingerprint,
        "num_rows": manifest.num_rows,
        "processor_xxh3": hash_folder(processor_dir),
        "max_tokens": stage.max_tokens,
        "max_images": stage.max_images,
        "too_long": stage.too_long,
        "image_decoding": stage.image_decoding,
        "image_format": stage.image_format,
        "image_quality": stage.image_quality if stage.image_format in LOSSY_FORMATS else None,
        "prompt": stage.prompt,
        "system_prompt": stage.system_prompt,
        **({"columns": asdict(stage.columns)} if stage.columns != KNOWN_COLUMNS else {}),
        "max_pixels": stage.max_pixels,
        "versions": {name: version(name).partition("+")[0] for name in _DECIDE_PIXELS_AND_TOKENS},
    }
    if stage.image_pixels is not None:  # omitted otherwise: older parts do not have it
        settings["image_pixels"] = {"min": stage.image_pixels.min, "max": stage.image_pixels.max}
    return settings


def model_inputs(encoder: SampleEncoder) -> dict[str, Any]:
    """Return the fields of `DatasetInfo` that come from the processor."""
    processor = encoder.processor
    return {
        **processor.images.model_inputs(),
        "image_mean": processor.image_mean,
        "image_std": processor.image_std,
        "rescale_factor": processor.rescale_factor,
        "image_token": processor.images.image_token,
        "image_token_id": encoder.chat.image_token_id,
        "pad_token_id": encoder.chat.pad_token_id,
    }
