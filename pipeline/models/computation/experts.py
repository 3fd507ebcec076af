"""Mixtures of experts (arXiv:2101.03961): layers of which each token uses only a few parts.

transformers stores the matrices of all experts of a layer in two parameters, `gate_up_proj` and
`down_proj` of [num_experts, rows, columns]. They are no linear layers, so adapters and 4 bits do
not apply to them.
"""

from __future__ import annotations

from typing import Any

from torch import nn

EXPERT_PARAMETERS = ("gate_up_proj", "down_proj")


def is_experts(module: nn.Module) -> bool:
    """Check whether a module has the matrices of all experts of a layer."""
    return all(isinstance(getattr(module, name, None), nn.Parameter) for name in EXPERT_PARAMETERS)


def is_router(module: nn.Module) -> bool:
    """Check whether a module chooses the experts of each token, by one matrix."""
    return hasattr(module, "top_k") and isinstance(getattr(module, "weight", None), nn.Parameter)


def num_used_weights(experts: Any, name: str, num_experts_per_token: int) -> int:
    """Return how many weights of an expert parameter, by its name in the module, a token uses."""
    all_weights: int = getattr(experts, name).numel()
    return all_weights // experts.num_experts * num_experts_per_token
