"""Matrix products whose width is no multiple of 8 are computed with zeros appended.

Rows of bf16 that do not begin at a multiple of 16 bytes get kernels of cuBLAS that are several
times slower (docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication). The
vision tower of Qwen2.5-VL has such layers: they are 3,420 wide. Zeros change no result: the
activation of 0 times 0 is 0.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_MULTIPLE = 8
"""Numbers of two bytes in 16 bytes."""
_PARTS = ("gate_proj", "up_proj", "down_proj")


def align_products(tower: nn.Module) -> None:
    """Have gated layers of a width that is no multiple of 8 append zeros on a GPU.

    Parameters stay what they are. Layers with adapters or in 4 bits compute as before.
    """
    for module in tower.modules():
        parts = [getattr(module, name, None) for name in _PARTS]
        if all(type(part) is nn.Linear for part in parts) and parts[0].out_features % _MULTIPLE:
            # One class for all layers: a function for each would be compiled for each.
            module.__class__ = _aligned(type(module))


@functools.cache
def _aligned(kind: type[nn.Module]) -> type[nn.Module]:
    """Return the class of layers with the name that others know it by."""

    def forward(self: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        if hidden.is_cuda and all(type(getattr(self, name)) is nn.Linear for name in _PARTS):
            return gated_aligned(self, hidden)
        found: torch.Tensor = kind.forward(self, hidden)
        return found

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def gated_aligned(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Compute `down(act(gate(x)) * up(x))` of [..., size] with a width that is a multiple of 8."""
    missing = -module.gate_proj.out_features % _MULTIPLE
    gate, up = (
        functional.linear(hidden, *_with_rows(part, missing))
        for part in (module.gate_proj, module.up_proj)
    )
    down = module.down_proj
    weight = functional.pad(down.weight, (0, missing))
    return functional.linear(module.act_fn(gate) * up, weight, down.bias)


def _with_rows(part: nn.Linear, missing: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    bias = None if part.bias is None else functional.pad(part.bias, (0, missing))
    return functional.pad(part.weight, (0, 0, 0, missing)), bias
