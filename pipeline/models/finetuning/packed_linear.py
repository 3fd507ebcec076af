"""A model's layers in 4 bits, as seen without bitsandbytes.

`quantized_linear` implements the layer and quantises a model; it needs bitsandbytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn

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
    dequantized = dict(weights)
    for name, value in weights.items():
        if name in layers:
            dequantized[name] = layers[name].dequantize(value.to(device)).to(value.device)
    return dequantized
