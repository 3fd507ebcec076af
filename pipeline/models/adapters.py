"""LoRA adapters (arXiv:2106.09685) by peft: added before sharding, merged or saved by themselves.

Targets are full names of linear layers. By the last word of a name alone (`q_proj`), which is how
they are often given, the vision tower of most families would be adapted too, without a word.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model_state_dict, inject_adapter_in_model
from safetensors.torch import save_file
from torch import nn

from pipeline.models.interface import VisionLanguageModel
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.adapters import AdaptersConfig

ADAPTER_WEIGHTS = "adapter_model.safetensors"
_NAME = "default"
"""What peft calls the one adapter."""


def add_adapters(model: VisionLanguageModel, config: AdaptersConfig, *, seed: int) -> None:
    """Put adapters beside the linear layers that the config names; they change nothing at first.

    Their weights are fp32 and depend on `seed` alone; all other parameters are frozen.

    Raises:
        StageConfigError: a pattern matches no linear layer.
    """
    settings = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=find_targets(model, config.targets),
        bias="none",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(settings, model.root())


def find_targets(model: VisionLanguageModel, patterns: tuple[str, ...]) -> list[str]:
    """Full names, within `model.root()`, of the linear layers that are adapted.

    Raises:
        StageConfigError: a pattern matches none.
    """
    root = model.root()
    linear = {name for name, module in root.named_modules() if isinstance(module, nn.Linear)}
    layers = {id(layer) for layer in model.towers()[-1]}
    starts = tuple(f"{name}." for name, module in root.named_modules() if id(module) in layers)
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern == "language":
            found = {name for name in linear if name.startswith(starts)}
        else:
            found = set(fnmatch.filter(linear, pattern))
        if not found:
            some = ", ".join(sorted(linear)[:3])
            message = (
                f"adapters.targets: {pattern!r} matches no linear layer; give `language`, or a "
                f"pattern of full names such as {some}"
            )
            raise StageConfigError(message)
        chosen |= found
    return sorted(chosen)


def merge_adapters(
    model: VisionLanguageModel, weights: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The weights of the model without adapters that computes the same.

    Args:
        model: That has the adapters; its own weights are not looked at.
        weights: Whole ones, by the model's names; not quantised.

    Returns:
        By the names of the model before adapters were added.
    """
    merged = {
        name.replace(".base_layer.", "."): weight
        for name, weight in weights.items()
        if ".lora_" not in name
    }
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") and _NAME in module.lora_A:
            low, high = (weights[f"{name}.lora_{x}.{_NAME}.weight"] for x in "AB")
            change = module.scaling[_NAME] * (high.float() @ low.float())
            weight = merged[f"{name}.weight"]
            merged[f"{name}.weight"] = (weight.float() + change).to(weight.dtype)
    return merged


def save_adapters(
    model: VisionLanguageModel, folder: Path, weights: Mapping[str, torch.Tensor], *, base: str
) -> Mapping[str, torch.Tensor]:
    """Write what `PeftModel.from_pretrained(base model, folder)` reads.

    Args:
        model: That has the adapters.
        folder: Appears whole by the caller's doing.
        weights: Whole ones, by the model's names.
        base: Where the model without adapters is found.

    Returns:
        What must be found in `ADAPTER_WEIGHTS`, by the names there.
    """
    root, prefix = model.root(), root_prefix(model)
    own = {name.removeprefix(prefix): weight for name, weight in weights.items()}
    chosen = get_peft_model_state_dict(root, state_dict=own, save_embedding_layers=False)
    # As PeftModel writes them, which has the model within two wrappers.
    written = {
        f"base_model.model.{name}": weight.detach().cpu().contiguous()
        for name, weight in chosen.items()
    }
    save_file(written, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    settings = root.peft_config[_NAME].to_dict() | {
        "base_model_name_or_path": base,
        "inference_mode": True,
    }
    values = {k: sorted(v) if isinstance(v, set) else v for k, v in settings.items()}
    (folder / "adapter_config.json").write_text(json.dumps(values, indent=2, sort_keys=True))
    return written


def root_prefix(model: VisionLanguageModel) -> str:
    """What names in the model have before those in `model.root()`."""
    root = model.root()
    (name,) = (name for name, module in model.named_modules() if module is root)
    return f"{name}." if name else ""
