"""Gradient norm of the whole model, and clipping; see `local_parts` for the reason."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard

from pipeline.train.optimizer.local_parts import local_part

_EPSILON = 1e-6
"""Constant that torch's `clip_grad_norm_` adds to the norm."""


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float | None) -> torch.Tensor:
    """Clip the gradients; return the norm of the whole model before clipping; no SYNC.

    A collective if the parameters are sharded.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    local = [local_part(gradient) for gradient in gradients]
    norms = torch.stack(torch._foreach_norm(local))  # noqa: SLF001 - as torch itself
    kinds = {(g.device_mesh, g.placements) for g in gradients if isinstance(g, DTensor)}
    if kinds:
        ((mesh, placements),) = kinds
        assert all(isinstance(gradient, DTensor) for gradient in gradients)
        dims = [dim for dim, placement in enumerate(placements) if isinstance(placement, Shard)]
        if dims:
            norms.square_()
        for dim in dims:
            dist.all_reduce(norms, group=mesh.get_group(dim))
        if dims:
            norms.sqrt_()  # for full parameters: in torch's order, for equal bits
    norm = torch.linalg.vector_norm(norms)
    if max_norm is not None:
        factor = torch.clamp(max_norm / (norm + _EPSILON), max=1.0)
        torch._foreach_mul_(local, factor)
    return norm
