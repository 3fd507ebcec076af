"""Linear layers by name: which of them are adapted, and which quantised.

By full names. By the last word of a name alone (`q_proj`), which is how they are often given, the
vision tower of most families would be meant too, without a word.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection

from torch import nn

from pipeline.models.interface import VisionLanguageModel
from pipeline.models.near_names import near_patterns
from slurm_jobs.common.errors import StageConfigError

_LANGUAGE = "language"


def find_targets(
    model: VisionLanguageModel,
    patterns: tuple[str, ...],
    key: str = "adapters.targets",
    *,
    only_used: bool = True,
) -> list[str]:
    """Full names, within `model.root()`, of the linear layers that are meant.

    Args:
        model: Before adapters are added.
        patterns: Names with `*`, `?` and `[..]`, or `language` for all within the layers of the
            language model.
        key: The config's, which has the patterns, for messages.
        only_used: Leave out layers on which nothing depends: they cannot learn.

    Raises:
        StageConfigError: a pattern matches none.
    """
    root = model.root()
    linear = {name for name, module in root.named_modules() if isinstance(module, nn.Linear)}
    linear -= (unused := _unused_layers(model) if only_used else set())
    layers = {id(layer) for layer in model.towers()[-1]}
    starts = tuple(f"{name}." for name, module in root.named_modules() if id(module) in layers)
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern == _LANGUAGE:
            found = {name for name in linear if name.startswith(starts)}
        else:
            found = set(fnmatch.filter(linear, pattern))
        if not found:
            of_all = " that anything depends on" if unused else ""
            near = near_patterns(pattern, [_LANGUAGE], linear) or sorted(linear)[:3]
            message = (
                f"{key}: {pattern!r} matches no linear layer{of_all}; give `language`, or a "
                f"pattern of full names, such as {', '.join(near)}"
            )
            raise StageConfigError(message)
        chosen |= found
    return sorted(chosen)


def _unused_layers(model: VisionLanguageModel) -> set[str]:
    """Names, within `model.root()`, of what has a weight on which nothing depends."""
    prefix = root_prefix(model)
    names = (name.removeprefix(prefix) for name in model.unused_parameters())
    return {name.removesuffix(".weight") for name in names if name.endswith(".weight")}


def root_prefix(model: VisionLanguageModel) -> str:
    """What names in the model have before those in `model.root()`."""
    root = model.root()
    (name,) = (name for name, module in model.named_modules() if module is root)
    return f"{name}." if name else ""


def refuse_tied(model: VisionLanguageModel, names: Collection[str], key: str) -> None:
    """Weights that are others by another name are changed by none of both alone.

    An export has such a weight once, as the other: what were changed of it would be lost.

    Args:
        model: Before adapters are added.
        names: Of the linear layers that are meant, within `model.root()`.
        key: The config's, which has the patterns, for messages.

    Raises:
        StageConfigError: one of the layers has such a weight.
    """
    prefix = root_prefix(model)
    for name, of in model.tied_weights().items():
        layer = name.removeprefix(prefix).removesuffix(".weight")
        if layer in names:
            message = (
                f"{key} matches {layer}, whose weight is {of.removeprefix(prefix)} by another "
                "name (tie_word_embeddings), and has no place of its own in an export; give "
                f"`{_LANGUAGE}`, or patterns that leave {layer} out"
            )
            raise StageConfigError(message)
