"""The small VLM from the folders of its towers."""

from __future__ import annotations

from pathlib import Path

from pipeline.models.build import build_model
from pipeline.models.small_vlm import SmallVLM
from slurm_jobs.formats.configs.model_parts import LanguageConfig, ModelConfig, VisionConfig
from tests.pipeline.models.small import make_facts

RANDOM_VISION = VisionConfig(hidden_size=32, num_layers=1, num_heads=2)
RANDOM_LANGUAGE = LanguageConfig(hidden_size=32, num_layers=1, num_heads=2)


def from_folders(vision: Path | None, language: Path | None) -> ModelConfig:
    return ModelConfig(
        vision=RANDOM_VISION if vision is None else VisionConfig(path=str(vision)),
        language=RANDOM_LANGUAGE if language is None else LanguageConfig(path=str(language)),
    )


def build(vision: Path | None, language: Path | None, *, seed: int = 0, **facts) -> SmallVLM:
    return build_model(from_folders(vision, language), make_facts(**facts), seed=seed)
