"""What of a model learns: adapters are added, and all other parameters than the chosen frozen.

What does not learn is the base. It is in no checkpoint, so what it was is noted instead, by a hash
of its weights: a training that went on from another base would be another one, without a word.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import xxhash

from pipeline.models import VisionLanguageModel
from pipeline.models.adapters import add_adapters
from pipeline.models.heads import num_classes
from pipeline.models.parts import choose, parts_of
from pipeline.training.phases import Phase
from slurm_jobs.common.stage_config.train import TrainConfig


def add_what_learns(model: VisionLanguageModel, config: TrainConfig) -> None:
    """Add the config's heads and adapters; before the model is spread.

    Weights of adapters depend on the seed alone; of a model on "meta" they have none either.

    Raises:
        StageConfigError: a target of adapters is no linear layer.
    """
    with next(model.parameters()).device:
        if config.levels:
            model.add_heads(len(config.levels), num_classes(config.levels))
        if config.adapters is not None:
            add_adapters(model, config.adapters, seed=config.seed)


def what_learns(model: VisionLanguageModel, phases: Sequence[Phase]) -> list[frozenset[str]]:
    """Names of the parameters that learn, phase by phase; heads learn in all of them.

    Raises:
        StageConfigError: a name or pattern stands for nothing.
    """
    parts, unused = parts_of(model), model.unused_parameters()
    heads = frozenset(name for name, part in parts.items() if part == "heads")
    chosen = (choose(parts, phase.config.learning_parts, phase.key("learn")) for phase in phases)
    return [(heads | names) - unused for names in chosen]


def hash_base(model: VisionLanguageModel, learned: frozenset[str]) -> str:
    """xxh3-128 of names and bytes of all but what learns, in hexadecimal; "" if all learns.

    `model` has its weights, and is not spread yet.
    """
    frozen = [(name, p) for name, p in model.named_parameters() if name not in learned]
    if not frozen:
        return ""
    digest = xxhash.xxh3_128()
    for name, parameter in sorted(frozen):
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
        digest.update(parameter.detach().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
