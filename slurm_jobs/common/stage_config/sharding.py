"""How `strategy: fsdp2` shards a model, and the scaler of `precision: fp16`."""

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
    """How `strategy: fsdp2` shards; every key trades memory for speed, and changes no update."""

    within: Literal["all", "node"] = "all"
    """`all`: parameters, gradients and optimizer are sharded over all ranks. `node`: over the ranks
    of a node, each node has the whole, and gradients alone go between nodes: more memory, and less
    to send where the network is slower than a node's own links."""
    unit_min_params: CountOrZero = 1_000_000
    """Layers are gathered one by one; a tower with fewer parameters than this is gathered with the
    rest of the model, because small collectives cost more than they free."""
    reshard_after_forward: bool = True
    """Whether a layer's gathered weights are freed after its forward pass and gathered again for
    its backward pass; false keeps them: a third less to send, all weights in memory."""
    forward_prefetch: CountOrZero = 0
    """How many layers ahead are gathered by explicit order; 0 leaves it to the device's queue,
    which gathers the next layer while one computes. Each holds its gathered weights."""
    accumulate: Literal["whole", "sharded"] = "whole"
    """Gradients between the microbatches of a step. `whole`: reduced once, after the last; until
    then each rank holds whole ones, 4 bytes a learned parameter. `sharded`: reduced after each."""
    cpu_offload: bool = False
    """Whether sharded weights, gradients and optimizer state lie in the node's memory, and the
    update is made there; slow, for models that do not fit otherwise."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalerConfig:
    """Scaling of the loss under fp16, whose gradients would vanish otherwise."""

    init_scale: Positive = 65536.0
    """What the loss is multiplied by at first; halved when the loss or a gradient overflows."""
    growth_interval: Count = 2000
    """Steps without an overflow after which the scale is doubled."""
    max_skips: Count = 20
    """Steps in a row whose loss or gradients may overflow, and are skipped, before the attempt
    fails."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)
