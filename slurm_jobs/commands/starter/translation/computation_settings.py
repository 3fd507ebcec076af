"""Precision, memory and sharding of another tool's training."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.commands.starter.other_tools.settings_file import near_path
from slurm_jobs.commands.starter.other_tools.tool_table import Meaning
from slurm_jobs.commands.starter.translation.translation import Translation

_STAGE = re.compile(r"z(?:ero)?[-_]?([0-3])")
_HALF = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16"}
_OTHER_CHECKPOINTING = frozenset({"offload", "offload_disk", "unsloth"})
"""axolotl's ways of moving stored inputs of layers elsewhere."""
_OF_PRECISION: tuple[Meaning, ...] = ("bf16", "fp16", "dtype")
_SHARDED_FROM = 1
"""DeepSpeed's first stage that shards something."""


def translate_computation(translation: Translation) -> None:
    """Translate precision, recomputed layers, the sharding strategy, and kernels."""
    training = translation.training
    _translate_precision(translation)
    _translate_checkpointing(translation)
    _translate_sharding(translation)
    kernel = "`attention: auto` chooses the fastest kernel that the GPU has"
    translation.account("attention", "translated", kernel)
    if training.flag("compile") and translation.is_quantized:
        translation.without(["compile"], "layers in 4 bits are not compiled")
    elif training.flag("compile"):
        translation.account("compile", "kept", translation.change("compile", {}))
    else:
        translation.account("compile", "kept", "no `compile`")
    if training.flag("trust_remote_code"):
        reason = "models of transformers do not need it; `model.trust_remote_code: true` allows it"
        translation.without(["trust_remote_code"], reason)
    else:
        translation.account("trust_remote_code", "kept", "no code of the model is run")


def _translate_checkpointing(translation: Translation) -> None:
    training = translation.training
    is_elsewhere = (training.text("checkpointing") or "").lower() in _OTHER_CHECKPOINTING
    if training.given("no_checkpointing"):
        is_on = not training.flag("no_checkpointing")
    else:
        is_on = is_elsewhere or training.flag("checkpointing")
    text = translation.change("activation_checkpointing", is_on)
    translation.account("checkpointing", "translated" if is_elsewhere else "kept", text)
    translation.account("no_checkpointing", "translated", text)


def _translate_precision(translation: Translation) -> None:
    training = translation.training
    auto = "`precision: auto` is bf16 on an A100 and newer GPUs, fp16 on a V100"
    half = _HALF.get((training.text("dtype") or "").lower().removeprefix("torch."))
    is_bf16 = training.flag("bf16") or half == "bf16"
    is_fp16 = not is_bf16 and (training.flag("fp16") or half == "fp16")
    if is_fp16 and translation.facts.place.gpu is not None:
        auto = translation.change("precision", "fp16")
    translation.account_all(_OF_PRECISION, "translated", auto)
    setting = training.setting("tf32")
    if setting is not None and str(setting.value).lower() != "auto":
        translation.keep("tf32", "tf32", training.flag("tf32"))
    else:
        translation.account("tf32", "kept", "`tf32: false`, which matters only in fp32")


def _translate_sharding(translation: Translation) -> None:
    training = translation.training
    value = training.setting("deepspeed")
    is_alone = translation.num_ranks == 1
    stage, offloads = _deepspeed(translation) if value is not None else (3, False)
    if is_alone:
        text = "`strategy: single`, because there is one rank"
    elif stage < _SHARDED_FROM:
        text = translation.change("strategy", "ddp")
    else:
        text = "`strategy: fsdp2`, which shards weights, gradients and optimizer"
    translation.account("deepspeed", "translated", text)
    translation.account("fsdp", "translated", text)
    if (offloads or training.flag("offload")) and not is_alone:
        offload = translation.change("sharding.cpu_offload", True)
        translation.account("offload", "kept", offload)
        translation.account("deepspeed", "translated", f"{text}; {offload}")
    else:
        translation.account("offload", "kept", "no `sharding.cpu_offload`")
    if training.given("reshard") and not is_alone:
        reshards = training.flag("reshard")
        translation.keep("reshard", "sharding.reshard_after_forward", reshards)
    else:
        translation.without(["reshard"], "nothing is sharded over one rank")


def _deepspeed(translation: Translation) -> tuple[int, bool]:
    """Return DeepSpeed's stage and whether it offloads: by its file, else by the file's name."""
    setting = translation.training.setting("deepspeed")
    assert setting is not None
    values: Any = setting.value
    if isinstance(values, str):
        path = near_path(Path(values), translation.training.file)
        with suppress(OSError, ValueError, RecursionError):
            values = json.loads(read_bytes(path)) if path is not None else values
    zero = values.get("zero_optimization") if isinstance(values, dict) else None
    if isinstance(zero, dict):
        offloads = [zero.get(key) for key in ("offload_param", "offload_optimizer")]
        devices = [each.get("device") for each in offloads if isinstance(each, dict)]
        return int(zero.get("stage") or 0), any(device not in {None, "none"} for device in devices)
    name = str(setting.value).rpartition("/")[2].lower()
    match = _STAGE.search(name)
    return (3 if match is None else int(match[1])), "offload" in name
