"""Config of sharding under `strategy: fsdp2`, and of the scaler of `precision: fp16`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_jobs.common.config_values import (
    Count,
    CountOrZero,
    Positive,
    check_bounds,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardingConfig:
    """Sharding under `strategy: fsdp2`; each key trades memory for speed, and changes no update."""

    within: Literal["all", "node"] = "all"
    """`all`: parameters, gradients and optimizer are sharded over all ranks. `node`: they are
    sharded over the ranks of a node, each node has a full copy, and only gradients go between
    nodes. That takes more memory, and sends less data if the network is slower than a node's own
    links."""
    unit_min_params: CountOrZero = 1_000_000
    """Smallest tower, in parameters, whose layers are gathered one by one; a smaller tower is
    gathered with the rest of the model, because small collectives cost more than they free."""
    reshard_after_forward: bool = True
    """Frees a layer's gathered weights after its forward pass and gathers them again for its
    backward pass. False keeps them: a third less to send, all weights in memory."""
    forward_prefetch: CountOrZero = 0
    """Number of layers that are gathered ahead explicitly; 0 leaves it to the device's queue, which
    gathers the next layer while one computes. Each holds its gathered weights."""
    accumulate: Literal["whole", "sharded"] = "whole"
    """Gradients between the microbatches of a step. `whole`: reduced once, after the last; until
    then each rank holds whole ones, 4 bytes for each learned parameter. `sharded`: reduced after
    each."""
    cpu_offload: bool = False
    """Keeps sharded weights, gradients and optimizer state in the node's memory, and updates them
    there; slow, for models that do not fit otherwise."""

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalerConfig:
    """Scaling of the loss under fp16, without which small gradients would become zero."""

    init_scale: Positive = 65536.0
    """First factor of the loss; halved when the loss or a gradient overflows."""
    growth_interval: Count = 2000
    """Steps without an overflow after which the scale is doubled."""
    max_skips: Count = 20
    """Successive steps whose loss or gradients may overflow, and are skipped, before the attempt
    fails."""

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)
