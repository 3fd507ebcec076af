"""What torch keeps of a sharded model, and has no public way to.

A group is the parameters of one unit, gathered together.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule

from pipeline.library_versions import param_groups_of


def units_within(model: nn.Module) -> list[FSDPModule]:
    """The modules that `fully_shard` was applied to."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def groups_of(model: nn.Module) -> list[Any]:
    """Their groups, in the same order."""
    return [group for unit in units_within(model) for group in param_groups_of(unit)]


def look_at_what_learns(model: nn.Module) -> None:
    """Have torch look again at which parameters have gradients, and of which type they are.

    It does so before the first pass alone. A unit that was frozen as a whole then has no type for
    its gradients, and the first backward pass in half precision in which it learns ends in an
    error (seen with torch 2.13).
    """
    for group in groups_of(model):
        group._init_mp_dtypes()  # noqa: SLF001 - see above


def forget_passes(model: nn.Module) -> None:
    """Have torch forget the passes without gradients that were made since the last backward one.

    It keeps the order of forward passes until a backward one ends, and gathers ahead by it. Ranks
    that made unlike numbers of passes would gather unlike units, and wait for each other for ever
    (seen with torch 2.13).
    """
    for group in groups_of(model):
        group._post_forward_indices.clear()  # noqa: SLF001 - see above
        group.comm_ctx.post_forward_order.clear()
