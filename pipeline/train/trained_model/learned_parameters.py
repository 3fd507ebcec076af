"""Selection of trained parameters: adds adapters and heads, and freezes all others.

The frozen part is the base. It is in no checkpoint, so a hash of its weights is stored instead:
otherwise training could silently continue from another base.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import xxhash

from pipeline.models.finetuning.packed_linear import quantized_layers, quantized_names
from pipeline.models.finetuning.parameter_names import visible_name, without_adapters
from pipeline.models.finetuning.trained_parts import choose, parts_of
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.phase import Phase
from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.errors import StageConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Learning:
    """Parameters trained in each phase; each value has one entry per phase."""

    now: tuple[frozenset[str], ...]
    """Names of the parameters trained in the phase."""
    so_far: tuple[frozenset[str], ...]
    """These and those of the phases before."""
    bases: tuple[str, ...]
    """`hash_base` of what was not trained by the phase's end."""


def plan_learning(model: VisionLanguageModel, phases: Sequence[Phase], ranks: Ranks) -> Learning:
    """Return the parameters that the phases' configs name; heads are trained in all of them.

    A collective, before sharding: rank 0 has the model's weights.

    Raises:
        StageConfigError: a name or pattern matches nothing, or matches quantised weights.
    """
    now = what_learns(model, phases)
    so_far = tuple(itertools.accumulate(now, operator.or_))
    bases = [hash_base(model, names) for names in so_far] if ranks.rank == 0 else []
    ranks.meet("base_hash", speaks=ranks.rank == 1)  # reads all of a large model
    return Learning(now=now, so_far=so_far, bases=tuple(ranks.from_main(bases)))


def what_learns(model: VisionLanguageModel, phases: Sequence[Phase]) -> tuple[frozenset[str], ...]:
    """Return the names of the trained parameters, phase by phase; also for a model on "meta".

    Raises:
        StageConfigError: as in `plan_learning`.
    """
    parts, unused = parts_of(model), model.unused_parameters()
    heads = frozenset(name for name, part in parts.items() if part == "heads")
    quantized = quantized_names(model)
    learning: list[frozenset[str]] = []
    for phase in phases:
        names = choose(parts, phase.config.learning_parts, phase.key("learn"))
        if wrong := sorted(names & quantized):
            message = (
                f"{phase.key('learn')} names {len(wrong)} weights in 4 bits, which cannot learn "
                f"({visible_name(wrong[0])}): leave them out, or name them in quantize.skip"
            )
            raise StageConfigError(message)
        learning.append((heads | names) - unused)
    return tuple(learning)


def hash_base(model: VisionLanguageModel, learned: frozenset[str]) -> str:
    """Return xxh3-128 of names and bytes of all that is not trained, in hexadecimal; "" if all is.

    For quantised weights this includes the scales. It excludes adapters while none of them was
    trained: until then they change nothing, so other adapters would give the same training.
    They only change the names of the trained weights next to them, under which a checkpoint
    stores these.

    `model` has its weights, and is not sharded yet.
    """
    adapters = {name for name, part in parts_of(model).items() if part == "adapters"}
    have_learned = bool(adapters & learned)
    left_out = learned if have_learned else learned | adapters
    fixed: dict[str, torch.Tensor] = {
        name: parameter for name, parameter in model.named_parameters() if name not in left_out
    }
    renamed = [] if have_learned else sorted(n for n in learned if without_adapters(n) != n)
    if not fixed and not renamed:
        return ""
    for layer_name, layer in quantized_layers(model):
        for buffer_name, buffer in layer.named_buffers(recurse=False):
            fixed[f"{layer_name}.{buffer_name}"] = buffer
    if not have_learned:
        fixed = {without_adapters(name): tensor for name, tensor in fixed.items()}
    digest = xxhash.xxh3_128("".join(renamed).encode())
    for name, tensor in sorted(fixed.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
