"""Names of parameters and layers: what wrappers add to them, and patterns of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pipeline.models.vision_language import VisionLanguageModel


def near_patterns(pattern: str, words: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return at most three alternatives to a pattern that matches nothing, the nearest first.

    Args:
        pattern: Pattern with `*`, `?` and `[..]` that matches none of `names`.
        words: Keywords that are allowed instead of a pattern.
        names: Dotted names. If the pattern begins with `*.`, the ends of names are compared,
            with as many words as the pattern has after its last `*`.
    """
    candidates = {*words, *names}
    head, _, tail = pattern.rpartition("*")
    if pattern.startswith("*.") and tail.startswith("."):
        num_words = tail.count(".")
        ends = (name.split(".")[-num_words:] for name in names)
        candidates = {*words, *(f"{head}*.{'.'.join(end)}" for end in ends)}
    return difflib.get_close_matches(pattern, sorted(candidates), n=3, cutoff=0.4)


def root_prefix(model: VisionLanguageModel) -> str:
    """Return the prefix of the names in `model.root()` within the model."""
    root = model.root()
    (name,) = (name for name, module in model.named_modules() if module is root)
    return f"{name}." if name else ""


_ADAPTER_MARK = ".lora_"


def visible_name(name: str) -> str:
    """Remove the additions of wrappers, ours and peft's, from a parameter's name."""
    return without_adapters(name).removeprefix("hf.")


def without_adapters(name: str) -> str:
    """Return the name that a parameter, or a buffer, has in the model without adapters."""
    return name.replace(".base_layer.", ".")


def is_adapter(name: str) -> bool:
    """Check whether a parameter belongs to adapters."""
    return _ADAPTER_MARK in name
