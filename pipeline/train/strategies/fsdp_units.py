"""Access to torch's private state of a sharded model.

A group is the parameters of one unit, gathered together.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule

from pipeline.models.computation.torch_versions import param_groups_of


def units_within(model: nn.Module) -> list[FSDPModule]:
    """Return the modules that `fully_shard` was applied to."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def groups_of(model: nn.Module) -> list[Any]:
    """Return their groups, in the same order."""
    return [group for unit in units_within(model) for group in param_groups_of(unit)]


def forget_passes(model: nn.Module) -> None:
    """Make torch forget passes without gradients.

    Torch records the order of forward passes until a backward pass ends, and prefetches by it.
    Ranks with different numbers of passes would gather different units, and deadlock (observed with
    torch 2.13).
    """
    for group in groups_of(model):
        group._post_forward_indices.clear()  # noqa: SLF001 - no public way
        group.comm_ctx.post_forward_order.clear()


def refresh_learned_dtypes(model: nn.Module) -> None:
    """Make torch reread which parameters have gradients, and of which dtype.

    It does so only before the first pass. A unit that was completely frozen then has no dtype
    for its gradients, and its first backward pass in half precision fails (observed with torch
    2.13).
    """
    for group in groups_of(model):
        group._init_mp_dtypes()  # noqa: SLF001 - see above
