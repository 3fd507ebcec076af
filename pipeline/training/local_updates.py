"""Gradient norm, clipping and AdamW on each rank's part of sharded parameters.

torch does both over DTensors, whose dispatch costs the host tens of milliseconds per step for
some hundred parameters, and many seconds in the first step (`python -m benchmarks.updates`).
Both are element-wise, except for the sum of squares, so each rank computes the same numbers
from the local tensors. State dicts are torch's: checkpoints do not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard

_EPSILON = 1e-6
"""Constant that torch's `clip_grad_norm_` adds to the norm."""


class LocalAdamW(torch.optim.AdamW):
    """AdamW that updates local tensors; its parameters and its state stay DTensors."""

    def _init_group(self, group: dict[str, Any], *lists: list[Any]) -> Any:
        """Fill `lists` with the tensors to update, like torch, but with their local parts."""
        has_complex = super()._init_group(group, *lists)  # type: ignore[misc]
        for tensors in lists:
            tensors[:] = [local_part(tensor) for tensor in tensors]
        return has_complex


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float | None) -> torch.Tensor:
    """Clip the gradients; return the norm of the whole model before clipping; no SYNC.

    A collective if the parameters are sharded.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    local = [local_part(gradient) for gradient in gradients]
    norms = torch.stack(torch._foreach_norm(local))  # noqa: SLF001 - as torch itself
    if groups := _groups_of(gradients):
        norms.square_()
        for group in groups:
            dist.all_reduce(norms, group=group)
        norms.sqrt_()  # for full parameters: in torch's order, for equal bits
    norm = torch.linalg.vector_norm(norms)
    if max_norm is not None:
        factor = torch.clamp(max_norm / (norm + _EPSILON), max=1.0)
        torch._foreach_mul_(local, factor)
    return norm


def _groups_of(gradients: list[torch.Tensor]) -> list[dist.ProcessGroup]:
    """Return process groups of the mesh dimensions that the gradients are sharded over."""
    kinds = {(g.device_mesh, g.placements) for g in gradients if isinstance(g, DTensor)}
    if not kinds:
        return []
    ((mesh, placements),) = kinds
    assert all(isinstance(gradient, DTensor) for gradient in gradients)
    return [mesh.get_group(dim) for dim, p in enumerate(placements) if isinstance(p, Shard)]


def local_part(tensor: Any) -> Any:
    """Return the local part of a DTensor; anything else unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
