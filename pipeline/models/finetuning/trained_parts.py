"""Selection of trained parameters: parts of a model by name, or patterns of parameter names.

A parameter belongs to one part. Names are those of the model's own files, so patterns can be
copied from the model's documentation.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

from pipeline.models.finetuning.parameter_names import is_adapter, near_patterns, visible_name
from pipeline.models.vision_language import VisionLanguageModel
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_phases import ALL, PARTS, Part


def parts_of(model: VisionLanguageModel) -> dict[str, Part]:
    """Return the part of each parameter, by the parameter's name in the model."""
    prefixes: list[tuple[Part, tuple[str, ...]]]
    prefixes = [("heads", ("heads.",)), *model.part_prefixes().items()]
    parts: dict[str, Part] = {}
    for name, _ in model.named_parameters():
        fits = (part for part, starts in prefixes if name.startswith(starts))
        parts[name] = "adapters" if is_adapter(name) else next(fits, "language")
    return parts


def choose(parts: Mapping[str, Part], patterns: Sequence[str], where: str) -> frozenset[str]:
    """Return the names of the parameters that the patterns match.

    Args:
        parts: From `parts_of`.
        patterns: Names of parts, `all` (all parts but the adapters), or patterns of parameter
            names with `*`, `?` and `[..]`.
        where: The config key of the patterns, for messages.

    Raises:
        StageConfigError: a pattern matches none.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern == ALL:
            matches = {name for name, part in parts.items() if part != "adapters"}
        elif pattern in PARTS:
            matches = {name for name, part in parts.items() if part == pattern}
        else:
            matches = {name for name in parts if fnmatch.fnmatchcase(visible_name(name), pattern)}
        if not matches:
            raise StageConfigError(_matches_nothing(parts, pattern, where))
        chosen |= matches
    return frozenset(chosen)


def _matches_nothing(parts: Mapping[str, Part], pattern: str, where: str) -> str:
    if pattern == "adapters":
        return f"{where}: the model has no adapters; set `adapters:`, or leave `adapters` out here"
    if pattern == "heads":
        return (
            f"{where}: the model has no heads; set `levels` with a `head: classes`, or leave "
            "`heads` out here"
        )
    if pattern in {*PARTS, ALL}:
        return f"{where}: the model has no parameter of the part {pattern!r}; leave it out here"
    names = sorted({visible_name(name) for name in parts})
    near = near_patterns(pattern, [*PARTS, ALL], names)
    return (
        f"{where}: {pattern!r} is not a part ({', '.join(PARTS)}, {ALL}) and matches no "
        f"parameter; similar: {', '.join(near or names[:3])}"
    )


def set_trainable(model: VisionLanguageModel, chosen: frozenset[str]) -> None:
    """Enable gradients of the chosen parameters only.

    Parameters that affect no output do not change: waiting for their gradient would end
    training. May be called again when the model is sharded, because FSDP2 reads it at every
    forward pass.
    """
    unused = model.unused_parameters()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in chosen and name not in unused)
