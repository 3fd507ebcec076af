"""Selection of trained parameters: parts of a model by name, or patterns of parameter names.

A parameter belongs to one part. Names are those of the model's own files, so patterns can be
copied from the model's documentation.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

from pipeline.models.interface import VisionLanguageModel
from pipeline.models.near_names import near_patterns
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.learn import ALL, PARTS, Part

_ADAPTER_MARK = ".lora_"
_MOST_NAMES = 3
"""Number of parameters suggested for a pattern that matches none."""


def visible_name(name: str) -> str:
    """Remove the additions of wrappers, ours and peft's, from a parameter's name."""
    return without_adapters(name).removeprefix("hf.")


def without_adapters(name: str) -> str:
    """Return the name that a parameter, or a buffer, has in the model without adapters."""
    return name.replace(".base_layer.", ".")


def is_adapter(name: str) -> bool:
    """Check whether a parameter belongs to adapters."""
    return _ADAPTER_MARK in name


def parts_of(model: VisionLanguageModel) -> dict[str, Part]:
    """Return the part of each parameter, by the parameter's name in the model."""
    prefixes = {"heads": ("heads.",), **model.part_prefixes()}
    found: dict[str, Part] = {}
    for name, _ in model.named_parameters():
        fits = (part for part, starts in prefixes.items() if name.startswith(starts))
        found[name] = "adapters" if is_adapter(name) else next(fits, "language")
    return found


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
        found = {name for name, part in parts.items() if _is_meant(pattern, name, part)}
        if not found:
            raise StageConfigError(_matches_nothing(parts, pattern, where))
        chosen |= found
    return frozenset(chosen)


def _is_meant(pattern: str, name: str, part: Part) -> bool:
    if pattern == ALL:
        return part != "adapters"
    if pattern in PARTS:
        return part == pattern
    return fnmatch.fnmatchcase(visible_name(name), pattern)


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
        f"parameter; similar: {', '.join(near or names[:_MOST_NAMES])}"
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
