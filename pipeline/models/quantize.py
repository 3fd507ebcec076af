"""Quantising of a model's layers to 4 bits (QLoRA, arXiv:2305.14314).

`quantized_linear` implements the layer; it needs bitsandbytes.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from pipeline.models.compute import find_targets, refuse_tied
from pipeline.models.vision_language import VisionLanguageModel
from slurm_jobs.shared.configs.model_parts import QuantizeConfig
from slurm_jobs.shared.errors import StageConfigError

STORAGE_DTYPES: Mapping[str, torch.dtype] = {
    "uint8": torch.uint8,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


class PackedLinear(nn.Linear):
    """Quantised layer as seen without bitsandbytes; `quantized_linear` implements it."""

    compute_dtype: torch.dtype

    @property
    def num_weights(self) -> int:
        """Number of weights of the matrix; the packed tensor has fewer numbers."""
        return self.in_features * self.out_features

    def dequantize(self, packed: torch.Tensor) -> torch.Tensor:
        """Return float32 [out_features, in_features]: the dequantised base weight.

        Args:
            packed: This layer's full weight.
        """
        message = "quantized_linear creates the layers, which know how they are packed"
        raise NotImplementedError(message)


def quantize_model(
    model: VisionLanguageModel, config: QuantizeConfig, device: torch.device
) -> None:
    """Replace the linear layers that the config names, one by one; the rest becomes fp32.

    Args:
        model: On the CPU, in any precision, or on "meta"; before adapters are added.
        config: Layers and method.
        device: Device of the computation. The last bits may depend on its type.

    Raises:
        StageConfigError: a pattern matches no linear layer, or matches the embeddings.
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
    # Allocate all of them before computing the first: small allocations between the large
    # temporary tensors would fragment the heap.
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
    """Convert all that is not packed, and the transformers config, which exports use."""
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
    """Yield the quantised layers by their names in the model."""
    for name, module in model.named_modules():
        if isinstance(module, PackedLinear):
            yield name, module


def quantized_names(model: nn.Module) -> frozenset[str]:
    """Return the names of the packed parameters."""
    return frozenset(f"{name}.weight" for name, _ in quantized_layers(model))


def compute_in(model: nn.Module, dtype: torch.dtype) -> None:
    """Set the dtype of inputs and outputs of quantised layers."""
    for _, layer in quantized_layers(model):
        layer.compute_dtype = dtype


def dequantize_weights(
    model: nn.Module, weights: Mapping[str, torch.Tensor], device: torch.device
) -> dict[str, torch.Tensor]:
    """Return the same weights with float32 matrices instead of packed ones; all are full weights.

    Each is unpacked on `device`, a GPU if there is one, and moved back to the device of
    `weights`: on a CPU 7 billion weights take minutes.
    """
    layers = {f"{name}.weight": layer for name, layer in quantized_layers(model)}
    return {
        name: layers[name].dequantize(value.to(device)).to(value.device)
        if name in layers
        else value
        for name, value in weights.items()
    }
