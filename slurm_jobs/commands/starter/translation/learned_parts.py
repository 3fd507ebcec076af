"""Parts that learn: adapters, parts of the model, and layers in 4 bits."""

from __future__ import annotations

import math

from slurm_jobs.commands.starter.other_tools.tool_table import Meaning
from slurm_jobs.commands.starter.place_choice import needs_4_bits
from slurm_jobs.commands.starter.translation import layer_names
from slurm_jobs.commands.starter.translation.translation import Translation

_LORA = frozenset({"lora", "qlora"})
_FULL = frozenset({"full", "none"})
_LANGUAGE_ONLY = "lora_llm"
"""ms-swift's LoRA in the language model, with a vision tower and a projector that learn whole."""
_OF_LORA: tuple[Meaning, ...] = (
    "lora_rank",
    "lora_alpha",
    "lora_dropout",
    "lora_targets",
    "lora_all_linear",
    "rank_stabilised",
)
_OF_QUANTIZATION: tuple[Meaning, ...] = (
    "quantization_bits",
    "quantization_kind",
    "double_quantization",
    "four_bits",
    "eight_bits",
)
_OF_FREEZING: tuple[Meaning, ...] = (
    "freeze_vision",
    "freeze_projector",
    "freeze_language",
    "freeze_vision_and_projector",
)
_FOUR = 4


def translate_learned_parts(translation: Translation) -> None:
    """Translate LoRA or full training, frozen parts, and QLoRA."""
    method = (translation.training.text("method") or "lora").lower()
    parts = _learning_parts(translation)
    if method in _FULL:
        _translate_full(translation, parts)
        return
    if method in _LORA:
        translation.account("method", "kept", "`adapters`")
    elif method == _LANGUAGE_ONLY:
        learn = translation.change("learn", ["adapters", "vision", "projector"])
        translation.account("method", "translated", f"`adapters` and {learn}")
    else:
        reason = f"LoRA is the only kind of adapter here; the spec has it instead of {method}"
        translation.without(["method"], reason)
    _translate_lora(translation, parts, is_language_only=method == _LANGUAGE_ONLY)
    _translate_quantization(translation)
    if translation.training.words("learned_patterns"):
        translation.without(["learned_patterns"], "besides adapters, parts are named in `learn`")


def _learning_parts(translation: Translation) -> list[str]:
    """Return the parts that are not frozen."""
    training = translation.training
    frozen = {
        "vision": training.flag("freeze_vision") or training.flag("freeze_vision_and_projector"),
        "projector": training.flag("freeze_projector")
        or training.flag("freeze_vision_and_projector"),
        "language": training.flag("freeze_language"),
    }
    return [part for part, is_frozen in frozen.items() if not is_frozen]


def _translate_full(translation: Translation, parts: list[str]) -> None:
    translation.dropped += ["adapters", "quantize"]
    translation.without([*_OF_LORA, *_OF_QUANTIZATION], "the training has no adapters")
    patterns = translation.training.words("learned_patterns")
    if patterns:
        # Expressions that match the start of a name.
        plain = (pattern.replace("\\", "").removesuffix(".*") for pattern in patterns)
        learn = [f"{pattern}*" for pattern in plain]
        text = translation.change("learn", learn)
        translation.account("learned_patterns", "translated", f"{text}; check the patterns")
    elif len(parts) == len(("vision", "projector", "language")):
        text = "all parts learn"
    else:
        text = translation.change("learn", parts or ["language"])
    translation.account("method", "translated", f"no `adapters`; {text}")
    translation.account_all(_OF_FREEZING, "translated", text)


def _translate_lora(translation: Translation, parts: list[str], *, is_language_only: bool) -> None:
    training = translation.training
    rank = training.count("lora_rank") or 8
    translation.keep("lora_rank", "adapters.rank", rank)
    alpha = training.number("lora_alpha")
    given = alpha
    if alpha is None:
        alpha = 2.0 * rank
    if training.flag("rank_stabilised"):
        alpha = round(alpha * math.sqrt(rank), 3)
        text = f"`adapters.alpha: {alpha:g}`, the scale that alpha / sqrt(rank) gives"
        translation.account("rank_stabilised", "translated", text)
    text = translation.change("adapters.alpha", int(alpha) if alpha == int(alpha) else alpha)
    translation.account("lora_alpha", "kept" if alpha == given else "translated", text)
    if given is None:
        translation.account("lora_rank", "kept", f"`adapters.rank: {rank}`, and {text}")
    if not training.flag("rank_stabilised"):
        translation.account("rank_stabilised", "kept", "the scale is alpha / rank")
    translation.keep("lora_dropout", "adapters.dropout", training.number("lora_dropout"))
    _translate_targets(translation, parts, is_language_only=is_language_only)


def _translate_targets(
    translation: Translation, parts: list[str], *, is_language_only: bool
) -> None:
    training, kind = translation.training, translation.facts.kind
    named = training.words("lora_targets")
    setting = training.setting("lora_targets")
    if setting is not None and isinstance(setting.value, str) and "(" in setting.value:
        named = [setting.value]  # a comma may be a part of the expression
    if training.flag("lora_all_linear") or not named:
        named = [*named, "all-linear"]
    has_flags = bool(training.given("freeze_vision"))
    is_within = "vision" not in parts and "projector" not in parts
    patterns, lost = layer_names.target_patterns(named, kind, is_within_language=is_within)
    if has_flags and not is_language_only and layer_names.LANGUAGE in patterns:
        finders = {
            "vision": layer_names.vision_pattern,
            "projector": layer_names.projector_pattern,
        }
        for part, find in finders.items():
            pattern = find(kind)
            if part in parts and pattern is not None:
                patterns.append(pattern)
            elif part in parts:
                lost.append(f"all layers of the {part}")
        if "language" not in parts:
            patterns.remove(layer_names.LANGUAGE)
    if training.flag("lora_all_linear"):
        lost.append("linear layers of the vision tower")
    patterns = patterns or [layer_names.LANGUAGE]
    text = translation.change("adapters.targets", sorted(patterns))
    if lost:
        text += f"; left out: {', '.join(lost)}, which full names can add"
    translation.account("lora_targets", "translated", text)
    translation.account("lora_all_linear", "translated", text)
    translation.account_all(_OF_FREEZING, "translated", text)


def _translate_quantization(translation: Translation) -> None:
    training = translation.training
    bits = training.count("quantization_bits")
    is_four = bits == _FOUR or training.flag("four_bits")
    kind = training.text("quantization_kind") or "nf4"
    if not is_four and needs_4_bits(translation.facts.model, translation.facts.place.gpu):
        translation.is_quantized = True
        reason = "`quantize`, because the weights in 16 bits take more than a third of a GPU here"
        translation.account_all([*_OF_QUANTIZATION, "method"], "translated", reason)
        return
    if not is_four:
        reason = "4 bits are all there is; the frozen layers stay in 16 bits"
        translation.without(_OF_QUANTIZATION, reason)
        if bits is None and not training.flag("eight_bits"):
            translation.account("four_bits", "kept", "no `quantize`")
            translation.account("eight_bits", "kept", "no `quantize`")
        return
    double = training.setting("double_quantization") is None or training.flag("double_quantization")
    translation.is_quantized = True
    text = translation.change("quantize", {"kind": "nf4", "double": double})
    translation.account_all(_OF_QUANTIZATION, "translated", text)
    if kind != "nf4":
        translation.without(["quantization_kind"], "nf4 is the only kind of 4 bits")
    translation.account("eight_bits", "kept", text)
