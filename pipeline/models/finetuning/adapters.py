"""LoRA adapters (arXiv:2106.09685) by peft: added before sharding, merged or saved separately.

`linear_layers` finds the layers to adapt. peft is imported on demand: it loads bitsandbytes, which
takes 1.5 s that a training without adapters need not spend.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from pipeline.models.finetuning.packed_linear import quantized_layers
from pipeline.models.finetuning.parameter_names import is_adapter, root_prefix, without_adapters
from pipeline.models.finetuning.target_layers import find_targets, refuse_tied
from pipeline.models.vision_language import VisionLanguageModel
from slurm_jobs.formats.configs.model_parts import AdaptersConfig

log = logging.getLogger(__name__)

ADAPTER_WEIGHTS = "adapter_model.safetensors"
_NAME = "default"
"""Name of the one adapter in peft."""


def add_adapters(model: VisionLanguageModel, config: AdaptersConfig, *, seed: int) -> None:
    """Add adapters to the linear layers that the config names; at first they change no output.

    Their weights are fp32 and depend on `seed` alone; all other parameters are frozen.

    Raises:
        StageConfigError: a pattern matches no linear layer, or matches the embeddings.
    """
    from peft import LoraConfig, inject_adapter_in_model

    names = find_targets(model, config.targets)
    refuse_tied(model, names, "adapters.targets")
    settings = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]  # peft divides it by the rank
        lora_dropout=config.dropout,
        target_modules=names,
        bias="none",
    )
    with torch.random.fork_rng(devices=[]), _marked_as_quantised(model):
        torch.manual_seed(seed)
        inject_adapter_in_model(settings, model.root())


@contextlib.contextmanager
def _marked_as_quantised(model: VisionLanguageModel) -> Iterator[None]:
    """Make peft use its own layer for quantised ones: it checks a flag of the model."""
    root: Any = model.root()
    if next(quantized_layers(model), None) is None:
        yield
        return
    root.is_loaded_in_4bit = True
    try:
        yield
    finally:
        del root.is_loaded_in_4bit  # transformers would forbid moving the model


def merge_adapters(
    model: VisionLanguageModel, weights: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the weights of the model without adapters that computes the same.

    Args:
        model: Model with adapters; its own weights are not read.
        weights: Full weights, by the model's names; not quantised.

    Returns:
        By the names of the model before adapters were added.
    """
    merged = {
        without_adapters(name): weight for name, weight in weights.items() if not is_adapter(name)
    }
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") and _NAME in module.lora_A:
            low, high = (weights[f"{name}.lora_{x}.{_NAME}.weight"] for x in "AB")
            change = module.scaling[_NAME] * (high.float() @ low.float())
            weight = merged[f"{name}.weight"]
            merged[f"{name}.weight"] = (weight.float() + change).to(weight.dtype)
    return merged


def save_adapters(
    model: VisionLanguageModel,
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    *,
    base: str,
    learned: AbstractSet[str],
) -> Mapping[str, torch.Tensor]:
    """Write the folder for `PeftModel.from_pretrained(base model, folder)`.

    Args:
        model: Model with adapters.
        folder: The caller makes it appear atomically.
        weights: Full weights, by the model's names.
        base: Location of the model without adapters.
        learned: Names of all trained parameters. Modules whose parameters were all trained,
            such as a projector, are saved with the adapters. peft cannot store the other trained
            parameters: a warning names one.

    Returns: Expected contents of `ADAPTER_WEIGHTS`, by the names there.
    """
    from peft import get_peft_model_state_dict

    root: Any = model.root()
    prefix = root_prefix(model)
    by_name = {name.removeprefix(prefix): weight for name, weight in weights.items()}
    chosen = get_peft_model_state_dict(root, state_dict=by_name, save_embedding_layers=False)
    modules = _trained_modules(
        root, {n.removeprefix(prefix) for n in learned if n.startswith(prefix)}
    )
    places = tuple(f"{name}." for name in modules)
    chosen |= {name: weight for name, weight in by_name.items() if name.startswith(places)}
    copies = _tied_copies(model, by_name, places)
    chosen |= copies
    modules += [name.rpartition(".")[0] for name in copies]
    # Names as in PeftModel, which nests the model in two wrappers.
    written = {
        f"base_model.model.{name}": weight.detach().cpu().contiguous()
        for name, weight in chosen.items()
    }
    save_file(written, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    settings = {
        **root.peft_config[_NAME].to_dict(),
        "base_model_name_or_path": base,
        "modules_to_save": sorted(modules) or None,
        "inference_mode": True,
    }
    # peft keeps the names of modules in sets.
    text = json.dumps(settings, indent=2, sort_keys=True, default=sorted)
    (folder / "adapter_config.json").write_text(text)
    return written


def _tied_copies(
    model: VisionLanguageModel, by_name: Mapping[str, torch.Tensor], places: tuple[str, ...]
) -> dict[str, torch.Tensor]:
    """Return weights tied to those of modules that peft copies: these would keep old values.

    All names are those within `model.root()`; `places` are prefixes of names in such modules.
    """
    prefix = root_prefix(model)
    tied = {
        name.removeprefix(prefix): source.removeprefix(prefix)
        for name, source in model.tied_weights().items()
    }
    return {
        name: by_name[source].clone() for name, source in tied.items() if source.startswith(places)
    }


def _trained_modules(root: nn.Module, learned: AbstractSet[str]) -> list[str]:
    """Return modules trained in addition to adapters; warn about weights that cannot be stored.

    They are the largest modules whose parameters were all trained.
    """
    modules, left = [], {name for name in learned if not is_adapter(name)}
    for name, module in root.named_modules():  # inner modules come later
        parameters = {f"{name}.{parameter}" for parameter, _ in module.named_parameters()}
        is_list = isinstance(module, nn.ModuleList | nn.ModuleDict)
        if parameters and parameters <= left and not is_list:
            modules.append(name)
            left -= parameters
    if left:
        log.warning(
            "the adapter folder cannot store %d weights that were trained in addition (%s, ..): "
            "use the exported model, which has them",
            len(left), min(left),
        )  # fmt: skip
    return sorted(modules)
