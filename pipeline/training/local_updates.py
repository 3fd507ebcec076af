"""Gradient norm, clipping and AdamW over each rank's own part of sharded parameters.

torch does both over DTensors, whose dispatch costs the host tens of milliseconds a step for some
hundred parameters, and many seconds in the first step (`python -m benchmarks.updates`). Both are
element by element, but for the sum of squares, so that each rank computes the same numbers from the
tensors behind the DTensors. State dicts are torch's own: checkpoints do not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard

_EPSILON = 1e-6
"""That torch's `clip_grad_norm_` adds to the norm."""


class LocalAdamW(torch.optim.AdamW):
    """AdamW whose update sees local tensors; its parameters and its state stay DTensors."""

    def _init_group(self, group: dict[str, Any], *lists: list[Any]) -> Any:
        """Fill `lists` with what is updated, as torch, then take the local part of each."""
        has_complex = super()._init_group(group, *lists)  # type: ignore[misc]
        for tensors in lists:
            tensors[:] = [local_part(tensor) for tensor in tensors]
        return has_complex


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float | None) -> torch.Tensor:
    """Clip the gradients; return their norm before that, of the whole model; no SYNC.

    A collective where the parameters are sharded.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    local = [local_part(gradient) for gradient in gradients]
    norms = torch.stack(torch._foreach_norm(local))  # noqa: SLF001 - as torch itself
    if groups := _groups_of(gradients):
        norms.square_()
        for group in groups:
            dist.all_reduce(norms, group=group)
        norms.sqrt_()  # of whole parameters: in the order of torch, whose bits they are
    norm = torch.linalg.vector_norm(norms)
    if max_norm is not None:
        factor = torch.clamp(max_norm / (norm + _EPSILON), max=1.0)
        torch._foreach_mul_(local, factor)
    return norm


def _groups_of(gradients: list[torch.Tensor]) -> list[dist.ProcessGroup]:
    """Process groups of the mesh dimensions that the gradients are sharded over."""
    kinds = {(g.device_mesh, g.placements) for g in gradients if isinstance(g, DTensor)}
    if not kinds:
        return []
    ((mesh, placements),) = kinds
    assert all(isinstance(gradient, DTensor) for gradient in gradients)
    return [mesh.get_group(dim) for dim, p in enumerate(placements) if isinstance(p, Shard)]


def local_part(tensor: Any) -> Any:
    """Return what this rank has of a DTensor; anything else as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
