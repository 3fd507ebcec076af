"""Differences between the supported versions of torch (2.11 to 2.14) and transformers.

Each function tests for the feature, not for the version, where possible. The rest of `pipeline`
is written for the newest version and calls these. To add a version, run the tests of
`tests/pipeline/models` and `tests/pipeline/train` in an environment that has it:
`tests/end_to_end/test_oldest_torch.py` does so with the oldest torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel


def torch_version() -> tuple[int, int]:
    """Return the major and the minor number."""
    major, minor, *_ = torch.__version__.split(".")
    return int(major), int(minor)


def can_shard_whole_numbers() -> bool:
    """Check whether `fully_shard` accepts frozen parameters of an integer dtype (packed weights).

    torch 2.11 makes a parameter of the shard before it sets `requires_grad`: "only Tensors of
    floating point dtype can require gradients".
    """
    return torch_version() >= (2, 12)


def param_groups_of(unit: FSDPModule) -> list[Any]:
    """Return the parameter groups of a unit of `fully_shard`; torch 2.11 has at most one."""
    state = unit._get_fsdp_state()  # noqa: SLF001 - no public way
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        group = state._fsdp_param_group  # noqa: SLF001 - no public way
        return [] if group is None else [group]
    return list(groups)


def replicate(module: nn.Module) -> DistributedDataParallel:
    """Wrap a module whose buffers are constants: they are not broadcast before a forward pass.

    From torch 2.13 on `broadcast_buffers` is deprecated.
    """
    known = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    no_broadcast: dict[str, Any] = {name: False}
    # Without views gradients would be in memory twice.
    return DistributedDataParallel(module, gradient_as_bucket_view=True, **no_broadcast)


def compile_whole(
    function: Callable[..., Any], *, backend: str, max_variants: int
) -> Callable[..., Any]:
    """Compile a function as one graph with symbolic shapes, at most `max_variants` times.

    torch 2.11 has one limit for all functions of the process.
    """
    options: dict[str, Any] = {"backend": backend, "dynamic": True, "fullgraph": True}
    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        options["recompile_limit"] = max_variants
    else:
        torch._dynamo.config.recompile_limit = max_variants  # noqa: SLF001 - no public way
    compiled: Callable[..., Any] = torch.compile(function, **options)
    return compiled
