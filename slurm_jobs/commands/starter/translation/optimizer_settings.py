"""Optimizer and schedule of another tool, as keys of `optimizer` and `schedule`."""

from __future__ import annotations

from slurm_jobs.commands.starter.translation.translation import Translation

_EIGHT_BITS = frozenset({"adamw_bnb_8bit", "adamw_8bit", "adamw_torch_8bit"})
_PLAIN = frozenset({"adamw", "adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused"})
_KINDS = {
    **dict.fromkeys(_PLAIN, "adamw"),
    **dict.fromkeys(_EIGHT_BITS, "adamw_8bit"),
    "paged_adamw": "paged_adamw",
    "paged_adamw_32bit": "paged_adamw",
    "paged_adamw_8bit": "paged_adamw_8bit",
}
"""Kinds of AdamW by the names of other tools."""
_SCHEDULES = {
    "cosine": "onecycle",
    "constant": "constant",
    "constant_with_warmup": "constant",
    "cosine_with_min_lr": "cosine",
    "cosine_warmup_with_min_lr": "cosine",
}
"""Shapes by the names of transformers, whose cosine falls to 0, as `onecycle` nearly does. The
`cosine` here falls to a tenth of the peak."""
_TENTH = 0.1


def translate_optimizer(translation: Translation) -> None:
    """Translate learning rate, AdamW's settings, and the course of the learning rate."""
    training = translation.training
    translation.keep("learning_rate", "optimizer.learning_rate", training.number("learning_rate"))
    translation.keep("weight_decay", "optimizer.weight_decay", training.number("weight_decay"))
    translation.keep("beta1", "optimizer.beta1", training.number("beta1"))
    translation.keep("beta2", "optimizer.beta2", training.number("beta2"))
    norm = training.number("clip_norm")
    if norm == 0:  # transformers does not clip then
        text = translation.change("optimizer.grad_clip_norm", None)
        translation.account("clip_norm", "translated", text)
    else:
        translation.keep("clip_norm", "optimizer.grad_clip_norm", norm)
    _translate_kind(translation)
    _translate_schedule(translation)
    _translate_warmup(translation)


def _translate_kind(translation: Translation) -> None:
    name = translation.training.text("optimizer")
    if name is None:
        return
    kind = _KINDS.get(name.lower())
    if kind is None:
        reason = f"AdamW is the only optimizer; the spec has `adamw` instead of {name}"
        translation.without(["optimizer"], reason)
    elif translation.facts.place.gpu is None and kind != "adamw":
        translation.without(["optimizer"], "the kinds with 8 bits or paging need a GPU")
    else:
        text = translation.change("optimizer.kind", kind)
        translation.account("optimizer", "kept" if kind == name else "translated", text)


def _translate_schedule(translation: Translation) -> None:
    training = translation.training
    name, share = training.text("schedule"), training.number("min_lr_share")
    if name is None:
        return
    kind = _SCHEDULES.get(name.lower())
    if kind == "onecycle" and share:
        kind = "cosine"
        exact = "" if share == _TENTH else f", and it falls to a tenth, not to {share:g}"
        translation.account("min_lr_share", "translated", f"`schedule.kind: cosine`{exact}")
    text = translation.change("schedule.kind", kind or "onecycle")
    if kind is None:
        reason = f"no such schedule; the nearest one that falls to 0 is set: {text}"
        translation.account("schedule", "translated", reason)
    elif kind == "onecycle":
        about = "half a cosine down to 0; `cosine` here falls to a tenth of the peak"
        translation.account("schedule", "translated", f"{text}, {about}")
    else:
        translation.account("schedule", "kept" if kind == name else "translated", text)


def _translate_warmup(translation: Translation) -> None:
    training = translation.training
    share, steps = training.number("warmup_share"), training.number("warmup_steps")
    if steps is not None and 0 < steps < 1:  # transformers takes it as a share
        share, steps = steps, None
        translation.account("warmup_steps", "translated", f"`schedule.warmup_share: {share:g}`")
    if not training.is_in_file("warmup_share") and steps is not None:
        share = None
        if translation.num_steps:
            share = round(min(0.99, steps / translation.num_steps), 4)
            text = translation.change("schedule.warmup_share", share)
            of_all = f"{steps:g} of {translation.num_steps} steps"
            translation.account("warmup_steps", "translated", f"{text}, {of_all}")
        else:
            reason = (
                "a share of all steps is needed here, whose number is not known yet: set "
                "`schedule.warmup_share`"
            )
            translation.without(["warmup_steps"], reason)
        return
    if share is not None and 0 <= share < 1:
        translation.keep("warmup_share", "schedule.warmup_share", share)
    if training.is_in_file("warmup_share") and steps is not None:
        translation.without(["warmup_steps"], "the share decides")
