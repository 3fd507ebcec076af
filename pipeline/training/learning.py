"""What of a model learns: adapters are added, and all other parameters than the chosen frozen.

What does not learn is the base. It is in no checkpoint, so what it was is noted instead, by a hash
of its weights: a training that went on from another base would be another one, without a word.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import xxhash

from pipeline.models import VisionLanguageModel
from pipeline.models.adapters import add_adapters
from pipeline.models.heads import num_classes
from pipeline.models.parts import choose, parts_of, visible_name, without_adapters
from pipeline.models.quantized import quantized_layers, quantized_names
from pipeline.training.phases import Phase
from pipeline.training.ranks import Ranks
from slurm_jobs.common.errors import StageConfigError
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Learning:
    """Which parameters learn in which phase; each value has one entry a phase."""

    now: tuple[frozenset[str], ...]
    """Names of those that learn in it."""
    so_far: tuple[frozenset[str], ...]
    """The same, with those of the phases before."""
    bases: tuple[str, ...]
    """`hash_base` of what has not learned by its end."""


def plan_learning(model: VisionLanguageModel, phases: Sequence[Phase], ranks: Ranks) -> Learning:
    """What the phases' configs name; heads learn in all of them.

    A collective, before the model is spread: rank 0 has its weights.

    Raises:
        StageConfigError: a name or pattern stands for nothing, or for quantised weights.
    """
    now = what_learns(model, phases)
    so_far = tuple(itertools.accumulate(now, operator.or_))
    bases = [hash_base(model, names) for names in so_far] if ranks.rank == 0 else []
    ranks.meet("base_hash", speaks=ranks.rank == 1)  # which reads all of a large model
    return Learning(now=now, so_far=so_far, bases=tuple(ranks.from_main(bases)))


def what_learns(model: VisionLanguageModel, phases: Sequence[Phase]) -> tuple[frozenset[str], ...]:
    """Names of the parameters that learn, phase by phase; of a model on "meta", too.

    Raises:
        StageConfigError: as `plan_learning`.
    """
    parts, unused = parts_of(model), model.unused_parameters()
    heads = frozenset(name for name, part in parts.items() if part == "heads")
    quantized = quantized_names(model)
    found: list[frozenset[str]] = []
    for phase in phases:
        names = choose(parts, phase.config.learning_parts, phase.key("learn"))
        if wrong := sorted(names & quantized):
            message = (
                f"{phase.key('learn')} names {len(wrong)} weights in 4 bits, which cannot learn "
                f"({visible_name(wrong[0])}): leave them out, or name them in quantize.skip"
            )
            raise StageConfigError(message)
        found.append((heads | names) - unused)
    return tuple(found)


def hash_base(model: VisionLanguageModel, learned: frozenset[str]) -> str:
    """xxh3-128 of names and bytes of all but what learns, in hexadecimal; "" if all learns.

    Of quantised weights the scales belong to it. Adapters do not while none of them has learned:
    until then they change nothing, and so others in their place make no other training. What they
    change is the names of learned weights that they stand beside, by which a checkpoint has these.

    `model` has its weights, and is not spread yet.
    """
    adapters = {name for name, part in parts_of(model).items() if part == "adapters"}
    have_learned = bool(adapters & learned)
    left_out = learned if have_learned else learned | adapters
    frozen = [(name, p) for name, p in model.named_parameters() if name not in left_out]
    renamed = [] if have_learned else sorted(n for n in learned if without_adapters(n) != n)
    if not frozen and not renamed:
        return ""
    scales = [
        (f"{name}.{own}", buffer)
        for name, layer in quantized_layers(model)
        for own, buffer in layer.named_buffers(recurse=False)
    ]
    digest = xxhash.xxh3_128("".join(renamed).encode())
    named = {n if have_learned else without_adapters(n): tensor for n, tensor in [*frozen, *scales]}
    for name, tensor in sorted(named.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
