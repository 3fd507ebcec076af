"""Zero padding for matrix products whose width is not a multiple of 8.

For rows of bf16 that do not start at a multiple of 16 bytes cuBLAS uses kernels that are
several times slower
(docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication). The vision
tower of Qwen2.5-VL has such layers: they are 3,420 wide. Zeros change no result: the activation
of 0 times 0 is 0.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pipeline.models.attention_kernels.varlen import computing_dtype

_MULTIPLE = 8
"""16 bytes hold 8 numbers of 2 bytes."""


_NUM_BYTES = 2


_PARTS = ("gate_proj", "up_proj", "down_proj")


def align_products(tower: nn.Module) -> None:
    """Pad gated layers whose width is not a multiple of 8 with zeros, on a GPU in bf16 or fp16.

    Parameters do not change. Layers with adapters or in 4 bits compute as before. The padded
    weights are kept for the backward pass. The modules can be copied, but not pickled.
    """
    for module in tower.modules():
        parts = [getattr(module, name, None) for name in _PARTS]
        linears = [part for part in parts if type(part) is nn.Linear]
        if len(linears) == len(_PARTS) and linears[0].out_features % _MULTIPLE:
            # One class for all layers: each separate function would be compiled again.
            module.__class__ = _aligned(type(module))  # type: ignore[arg-type]  # mypy compares the instances' `__hash__`


@functools.cache
def _aligned(kind: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass that pads with zeros, under the same name."""

    def forward(self: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        if _gains(self, hidden):
            return gated_aligned(self, hidden)
        output: torch.Tensor = kind.forward(self, hidden)
        return output

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _gains(module: nn.Module, hidden: torch.Tensor) -> bool:
    is_short = computing_dtype(hidden).itemsize == _NUM_BYTES
    is_plain = all(type(getattr(module, name)) is nn.Linear for name in _PARTS)
    return hidden.is_cuda and is_short and is_plain


def gated_aligned(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Compute `down(act(gate(x)) * up(x))` of [..., size] with a width that is a multiple of 8."""
    missing = -module.gate_proj.out_features % _MULTIPLE
    gate, up = (
        functional.linear(
            hidden,
            functional.pad(part.weight, (0, 0, 0, missing)),
            None if part.bias is None else functional.pad(part.bias, (0, missing)),
        )
        for part in (module.gate_proj, module.up_proj)
    )
    down = module.down_proj
    weight = functional.pad(down.weight, (0, missing))
    return functional.linear(module.act_fn(gate) * up, weight, down.bias)
