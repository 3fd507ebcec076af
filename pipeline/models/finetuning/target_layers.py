"""Linear layers by name: those to adapt, and those to quantise.

Full names are used. The last word of a name alone (`q_proj`), which is how they are often
given, would silently include the vision tower in most families.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection

from torch import nn

from pipeline.models.finetuning.parameter_names import near_patterns, root_prefix
from pipeline.models.vision_language import VisionLanguageModel
from slurm_jobs.base.errors import StageConfigError

_LANGUAGE = "language"


def find_targets(
    model: VisionLanguageModel,
    patterns: tuple[str, ...],
    key: str = "adapters.targets",
    *,
    only_used: bool = True,
) -> list[str]:
    """Return the full names, within `model.root()`, of the linear layers that patterns match.

    Args:
        model: Before adapters are added.
        patterns: Names with `*`, `?` and `[..]`, or `language` for all within the layers of the
            language model.
        key: The config key of the patterns, for messages.
        only_used: Leave out layers that affect no output: they cannot learn.

    Raises:
        StageConfigError: a pattern matches none.
    """
    root = model.root()
    linear = {name for name, module in root.named_modules() if isinstance(module, nn.Linear)}
    unused: set[str] = set()
    if only_used:
        prefix = root_prefix(model)
        names = (name.removeprefix(prefix) for name in model.unused_parameters())
        unused = {name.removesuffix(".weight") for name in names if name.endswith(".weight")}
    linear -= unused
    layers = {id(layer) for layer in model.towers()[-1]}
    starts = tuple(f"{name}." for name, module in root.named_modules() if id(module) in layers)
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern == _LANGUAGE:
            matches = {name for name in linear if name.startswith(starts)}
        else:
            matches = set(fnmatch.filter(linear, pattern))
        if not matches:
            of_all = " that affects an output" if unused else ""
            near = near_patterns(pattern, [_LANGUAGE], linear) or sorted(linear)[:3]
            message = (
                f"{key}: {pattern!r} matches no linear layer{of_all}; set `language`, or a "
                f"pattern of full names, such as {', '.join(near)}"
            )
            raise StageConfigError(message)
        chosen |= matches
    return sorted(chosen)


def refuse_tied(model: VisionLanguageModel, names: Collection[str], key: str) -> None:
    """Refuse layers with tied weights, which cannot be changed separately.

    An export has such a weight once, under the other name: a change of it would be lost.

    Args:
        model: Before adapters are added.
        names: Names of the linear layers, within `model.root()`.
        key: The config key of the patterns, for messages.

    Raises:
        StageConfigError: one of the layers has such a weight.
    """
    prefix = root_prefix(model)
    for name, of in model.tied_weights().items():
        layer = name.removeprefix(prefix).removesuffix(".weight")
        if layer in names:
            message = (
                f"{key} matches {layer}, whose weight is tied to {of.removeprefix(prefix)} "
                f"(tie_word_embeddings) and cannot be exported separately; set `{_LANGUAGE}`, or "
                f"patterns that leave {layer} out"
            )
            raise StageConfigError(message)
