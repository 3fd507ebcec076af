"""Names of layers: those that another tool adapts, as patterns of full names. PURE."""

from __future__ import annotations

import re
from collections.abc import Sequence

LANGUAGE = "language"
"""All linear layers within the layers of the language model, in `adapters.targets`."""
_WORDS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Linear layers of a language model of the Llama and Qwen kind."""
_ALL = frozenset({"all", "all-linear", "all_linear"})
_NOT_LINEAR = frozenset({"embed_tokens", "lm_head", "all-embedding", "all-router"})
_REGEX = re.compile(r"[\\()|\[\]^$+]")
_PREFIXES = (
    "model.language_model.layers.0",
    "language_model.model.layers.0",
    "model.text_model.layers.0",
    "model.layers.0",
)
_VISION = (
    (re.compile(r"qwen"), "*.visual.blocks.*"),
    (re.compile(r"llava|internvl|gemma"), "*.vision_tower.*"),
    (re.compile(r"smolvlm|idefics"), "*.vision_model.*"),
)
_PROJECTOR = (
    (re.compile(r"qwen"), "*.visual.merger.*"),
    (re.compile(r"llava|internvl"), "*.multi_modal_projector.*"),
    (re.compile(r"smolvlm|idefics"), "*.connector.*"),
)


def vision_pattern(model: str) -> str | None:
    """Return the pattern of a vision tower's layers, by the model's name or type."""
    return next((pattern for words, pattern in _VISION if words.search(model.lower())), None)


def projector_pattern(model: str) -> str | None:
    """Return the pattern of a projector's layers, by the model's name or type."""
    return next((pattern for words, pattern in _PROJECTOR if words.search(model.lower())), None)


def target_patterns(
    named: Sequence[str], model: str, *, is_within_language: bool
) -> tuple[list[str], list[str]]:
    """Return the patterns of layers that another tool names, and the names that have none.

    Args:
        named: `all`, ends of names as PEFT takes them, or one regular expression.
        model: Name or type of the model.
        is_within_language: True if the tool leaves out the other parts in any case.
    """
    patterns: list[str] = []
    lost: list[str] = []
    tower = "text_model" if re.search("smolvlm|idefics", model.lower()) else "language_model"
    ends = [name for name in named if name not in _ALL and name not in _NOT_LINEAR]
    if any(name in _ALL for name in named):
        patterns.append(LANGUAGE)
        ends = [end for end in ends if end not in _WORDS]
    lost += [name for name in named if name in _NOT_LINEAR]
    for end in ends:
        if not _REGEX.search(end):
            patterns.append(f"*{tower}*.{end}" if is_within_language else f"*.{end}")
            continue
        words = _language_words(end)
        if "vis" in end or "projector" in end or not words:
            lost.append(end)
        patterns += (
            [LANGUAGE] if words == set(_WORDS) else [f"*{tower}*.{w}" for w in sorted(words)]
        )
    if is_within_language and set(ends) == set(_WORDS):
        patterns = [LANGUAGE]
    return list(dict.fromkeys(patterns)), lost


def _language_words(pattern: str) -> set[str]:
    """Return the last words of a language model's layers that a regular expression matches."""
    try:
        expression = re.compile(pattern)
    except re.error:
        return set()
    words = set()
    for prefix in _PREFIXES:
        for word in _WORDS:
            block = "self_attn" if word in _WORDS[:4] else "mlp"
            if expression.fullmatch(f"{prefix}.{block}.{word}"):
                words.add(word)
    return words
