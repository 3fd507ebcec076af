"""Limits of samples and images, and the words around them, of another tool's training."""

from __future__ import annotations

from dataclasses import replace

from slurm_jobs.commands.starter.sample_lengths import LengthLimits
from slurm_jobs.commands.starter.translation.translation import Translation
from slurm_jobs.formats.processors.image_plans import NativeImages

_CUTTING_TOOLS = frozenset({"LLaMA-Factory", "LLaMA-Factory v1"})
"""Tools that cut samples which are too long."""
_CUTS = frozenset({"left", "right", "truncate"})
_DROPS = frozenset({"delete", "drop"})


def translate_sample_limits(translation: Translation, found: LengthLimits) -> None:
    """Translate the longest sample and the size of images; the rest stays as the rows need it."""
    training = translation.training
    num_tokens = training.count("max_tokens")
    if num_tokens is not None and num_tokens > 0:
        text = f"`max_tokens: {num_tokens}`, image tokens included"
        translation.account("max_tokens", "kept", text)
    else:
        num_tokens = found.max_tokens
    translation.limits = replace(
        found,
        max_tokens=num_tokens,
        image_pixels=_translate_pixels(translation),
        reason=f"as in {training.file.name}",
        notes=(),
    )
    _translate_too_long(translation)
    system = training.text("system_prompt")
    if system is not None:
        text = translation.change("system_prompt", system, stage="preprocess")
        about = "for captions and questions; conversations have their own"
        translation.account("system_prompt", "translated", f"{text}, {about}")
    template = translation.facts.model.chat_template
    if template is None:
        own = "the chat template in the model's folder is used"
        translation.account("template", "translated", own)
    else:
        text = f"`chat_template: {template}`, because the model's own cannot be trained with"
        translation.account("template", "translated", text)


def _translate_pixels(translation: Translation) -> int | None:
    """Return the largest area of an image in pixels; None if the processor's limit stays."""
    rules = translation.facts.rules
    if isinstance(rules, NativeImages):
        most = _translate_most(translation, rules)
        _translate_least(translation, rules, rules.max_pixels if most is None else most)
        return most
    reason = "the model's processor makes images of fixed sizes"
    if rules is None:
        reason = (
            "the model's processor is not known here: set `image_pixels.max` in pixels if it "
            "keeps the proportions of images"
        )
    translation.without(["max_pixels", "min_pixels", "max_image_tokens"], reason)
    return None


def _translate_most(translation: Translation, rules: NativeImages) -> int | None:
    training = translation.training
    most, tokens = training.count("max_pixels"), training.count("max_image_tokens")
    side = rules.patch_size * rules.merge_size
    if tokens is not None:
        most = tokens * side**2
    if most is None:
        return None
    if most >= rules.max_pixels:
        text = f"the processor's own limit is lower, {rules.max_pixels} pixels"
        translation.without(["max_pixels", "max_image_tokens"], text)
        return None
    pixels = max(most, rules.min_pixels)
    text = f"`image_pixels: {{max: {pixels}}}`, {pixels // side**2} tokens per image"
    translation.account("max_pixels", "kept" if pixels == most else "translated", text)
    translation.account("max_image_tokens", "translated", text)
    return pixels


def _translate_least(translation: Translation, rules: NativeImages, most: int) -> None:
    least = translation.training.count("min_pixels")
    if least is None:
        return
    if least <= rules.min_pixels:
        reason = f"the processor's own limit is higher, {rules.min_pixels} pixels"
        translation.without(["min_pixels"], reason)
        return
    text = translation.change("image_pixels.min", min(least, most), stage="preprocess")
    translation.account("min_pixels", "kept" if least <= most else "translated", text)


def _translate_too_long(translation: Translation) -> None:
    training = translation.training
    action = (training.text("too_long") or "").lower()
    if action in _CUTS or (not action and training.tool.name in _CUTTING_TOOLS):
        text = translation.change("too_long", "truncate_text", stage="preprocess")
        translation.account("too_long", "translated", f"{text}, which cuts at the end")
        cut = f"{text}, because {training.tool.name} cuts longer samples"
        if not action:
            length = translation.limits.max_tokens
            translation.account("max_tokens", "kept", f"`max_tokens: {length}` and {cut}")
    elif action in _DROPS:
        translation.account("too_long", "kept", "`too_long: drop`, which is the default")
    elif action:
        reason = "samples that are too long are left out: `too_long`"
        translation.without(["too_long"], reason)
