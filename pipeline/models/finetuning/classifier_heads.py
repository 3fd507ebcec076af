"""Classifier heads, as files next to the model: the levels, and their weights.

Loading the folder as a transformers model ignores them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from pipeline.models.vision_language import HEADS_PREFIX, VisionLanguageModel
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.training_phases import LevelConfig

HEADS_WEIGHTS = "heads.safetensors"


LEVELS_NAME = "levels.json"


def num_classes(levels: Sequence[LevelConfig]) -> dict[int, int]:
    """Return the number of classes of each level with a head, by number of the level."""
    return {
        number: len(level.classes) for number, level in enumerate(levels) if level.head == "classes"
    }


def save_heads(
    folder: Path, levels: Sequence[LevelConfig], weights: Mapping[str, torch.Tensor]
) -> Mapping[str, torch.Tensor]:
    """Write the levels and the heads' weights; return what must be found on disk."""
    if not levels:
        return {}
    write_json_atomic(folder / LEVELS_NAME, [asdict(level) for level in levels])
    heads = {
        name: weight.detach().cpu().contiguous()
        for name, weight in weights.items()
        if name.startswith(HEADS_PREFIX)
    }
    if heads:
        save_file(heads, folder / HEADS_WEIGHTS, metadata={"format": "pt"})
    return heads


def load_heads(model: VisionLanguageModel, folder: Path) -> tuple[LevelConfig, ...]:
    """Add the heads in its folder to the model; return the levels, none if there are none.

    Raises:
        StageConfigError: the files are damaged.
    """
    if not (folder / LEVELS_NAME).exists():
        return ()
    try:
        values = json.loads(read_bytes(folder / LEVELS_NAME))
        levels = tuple(build_config(LevelConfig, value) for value in values)
        model.add_heads(num_classes(levels))
        if len(model.heads):
            weights = load_file(folder / HEADS_WEIGHTS)
            model.heads.load_state_dict(
                {name.removeprefix(HEADS_PREFIX): value for name, value in weights.items()}
            )
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        message = f"model folder {folder}: its heads cannot be read ({error})"
        raise StageConfigError(message) from error
    return levels
