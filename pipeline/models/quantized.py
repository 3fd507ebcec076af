"""Which layers of a model are in 4 bits, and putting them there (QLoRA, arXiv:2305.14314).

The layer itself is for `quantized_linear`, which needs bitsandbytes.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from pipeline.models.interface import VisionLanguageModel
from pipeline.models.linear_layers import find_targets, refuse_tied
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.quantize import QuantizeConfig

STORAGE_DTYPES: Mapping[str, torch.dtype] = {
    "uint8": torch.uint8,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


class PackedLinear(nn.Linear):
    """What is known of a quantised layer without bitsandbytes; `quantized_linear` makes them."""

    compute_dtype: torch.dtype

    @property
    def num_weights(self) -> int:
        """Of the matrix; the packed tensor has fewer numbers."""
        return self.in_features * self.out_features

    def dequantize(self, packed: torch.Tensor) -> torch.Tensor:
        """Float32 [out_features, in_features]: the matrix that was trained beside.

        Args:
            packed: This layer's weight, whole.
        """
        message = "quantized_linear makes the layers, which know how they are packed"
        raise NotImplementedError(message)


def quantize_model(
    model: VisionLanguageModel, config: QuantizeConfig, device: torch.device
) -> None:
    """Replace the linear layers that the config names, one after the other; the rest is fp32.

    Args:
        model: On the CPU, in any precision, or on "meta"; before adapters are added.
        config: Which layers, and how.
        device: Where it is computed. The last bits may depend on its type.

    Raises:
        StageConfigError: a pattern matches no linear layer, or one that is the embeddings.
    """
    from pipeline.models.quantized_linear import QuantizedLinear

    root: Any = model.root()
    names = find_targets(model, config.targets, "quantize.targets", only_used=False)
    for pattern in config.skip:
        if not fnmatch.filter(names, pattern):
            message = (
                f"quantize.skip: {pattern!r} matches none of the layers that quantize.targets "
                f"names, such as {', '.join(names[:3])}"
            )
            raise StageConfigError(message)
        names = [name for name in names if not fnmatch.fnmatchcase(name, pattern)]
    refuse_tied(model, names, "quantize.targets")
    layers = [root.get_submodule(name) for name in names]
    # Room for all of them before the first is computed: what lies between the large tensors that
    # come and go would keep the heap from taking these in again.
    made = [QuantizedLinear(layer, config) for layer in layers]
    for name, layer in zip(names, made, strict=True):
        owner, _, own_name = name.rpartition(".")
        setattr(root.get_submodule(owner), own_name, layer)
    for layer in reversed(made):
        taken = layers.pop()
        if not taken.weight.is_meta:
            layer.take(taken.weight, device)
    _make_fp32(model)


def _make_fp32(model: VisionLanguageModel) -> None:
    """What is not packed; a config of transformers says so, too, which exports are loaded by."""
    quantized = {id(layer.weight) for _, layer in quantized_layers(model)}
    for parameter in model.parameters():
        if id(parameter) not in quantized:
            parameter.data = parameter.data.float()
    config: Any = getattr(model.root(), "config", None)
    if isinstance(config, PreTrainedConfig):
        for one in (config, *(getattr(config, name, None) for name in config.sub_configs)):
            if one is not None:
                one.dtype = torch.float32


def quantized_layers(model: nn.Module) -> Iterator[tuple[str, PackedLinear]]:
    """By their names in the model."""
    for name, module in model.named_modules():
        if isinstance(module, PackedLinear):
            yield name, module


def quantized_names(model: nn.Module) -> frozenset[str]:
    """Names of the parameters that are packed."""
    return frozenset(f"{name}.weight" for name, _ in quantized_layers(model))


def compute_in(model: nn.Module, dtype: torch.dtype) -> None:
    """Have quantised layers give and take `dtype`."""
    for _, layer in quantized_layers(model):
        layer.compute_dtype = dtype


def dequantize_weights(
    model: nn.Module, weights: Mapping[str, torch.Tensor], device: torch.device
) -> dict[str, torch.Tensor]:
    """Return the same weights with float32 matrices instead of packed ones; all of them whole.

    Each is unpacked on `device`, a GPU if there is one, and goes back to where `weights` are: on a
    CPU 7 billion weights take minutes.
    """
    layers = {f"{name}.weight": layer for name, layer in quantized_layers(model)}
    return {
        name: layers[name].dequantize(value.to(device)).to(value.device)
        if name in layers
        else value
        for name, value in weights.items()
    }
