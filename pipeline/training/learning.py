"""What of a model learns: adapters are added, and all other parameters than the chosen frozen.

What does not learn is the base. It is in no checkpoint, so what it was is noted instead, by a hash
of its weights: a training that went on from another base would be another one, without a word.
"""

from __future__ import annotations

import torch
import xxhash

from pipeline.models import VisionLanguageModel
from pipeline.models.adapters import add_adapters
from pipeline.models.heads import num_classes
from pipeline.models.parts import choose, parts_of, set_trainable
from slurm_jobs.common.stage_config.train import TrainConfig


def choose_what_learns(model: VisionLanguageModel, config: TrainConfig) -> None:
    """Add the config's adapters and freeze what it does not name; before the model is spread.

    Weights of adapters depend on the seed alone; of a model on "meta" they have none either.

    Raises:
        StageConfigError: a name or pattern stands for nothing.
    """
    if config.levels:
        with next(model.parameters()).device:
            model.add_heads(len(config.levels), num_classes(config.levels))
    if config.adapters is not None:
        with next(model.parameters()).device:
            add_adapters(model, config.adapters, seed=config.seed)
    parts = parts_of(model)
    heads = frozenset(name for name, part in parts.items() if part == "heads")
    set_trainable(model, heads | choose(parts, config.learning_parts, "learn"))


def hash_base(model: VisionLanguageModel) -> str:
    """xxh3-128 of names and bytes of all that does not learn, in hexadecimal; "" if all learns.

    `model` has its weights, and is not spread yet.
    """
    frozen = [(name, p) for name, p in model.named_parameters() if not p.requires_grad]
    if not frozen:
        return ""
    digest = xxhash.xxh3_128()
    for name, parameter in sorted(frozen):
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
        digest.update(parameter.detach().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
