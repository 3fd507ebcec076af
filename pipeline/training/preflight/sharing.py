"""Sharding of a model over ranks, as far as it determines memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from pipeline.models import VisionLanguageModel
from pipeline.training.strategies.asked import wrapped_by_file
from pipeline.training.strategies.fully_sharded import units_of
from pipeline.training.strategies.mesh import Place, shape_by_nodes
from slurm_jobs.common.accelerate_file import AccelerateFile
from slurm_jobs.common.stage_config.train import TrainConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """Sharding of a config, or of a file of accelerate."""

    is_sharded: bool
    """True if weights are gathered for computing; unsharded ones are cast by autocast."""
    num_shards: int
    """Ranks over which weights, gradients and optimizer are sharded."""
    keeps_gathered: bool = False
    """True if all gathered weights stay until the backward pass."""
    num_ahead: int = 0
    """Layers that are prefetched."""
    accumulates_whole: bool = False
    """True if gradients are unsharded between the microbatches of a step."""
    offloads: bool = False
    """True if shards, gradients and optimizer are in the node's memory."""


def sharing_of(
    config: TrainConfig, file: AccelerateFile | None, places: Sequence[Place]
) -> Sharing:
    """Return the strategy's sharding on these ranks; `file` is that of `strategy: accelerate`.

    Raises:
        StageConfigError: `sharding.within` is `node`, but nodes have unequal ranks.
    """
    if file is not None:
        if file.distributed_type != "FSDP":
            return Sharing(is_sharded=False, num_shards=1)
        return Sharing(
            is_sharded=True,
            num_shards=len(places) // file.num_replicas,
            accumulates_whole=True,
            offloads=file.offloads,
        )
    if config.strategy != "fsdp2":
        return Sharing(is_sharded=False, num_shards=1)
    sharding = config.sharding
    return Sharing(
        is_sharded=True,
        num_shards=shape_by_nodes(places)[1] if sharding.within == "node" else len(places),
        keeps_gathered=not sharding.reshard_after_forward,
        num_ahead=sharding.forward_prefetch,
        accumulates_whole=sharding.accumulate == "whole",
        offloads=sharding.cpu_offload,
    )


def gathered_units(
    model: VisionLanguageModel, config: TrainConfig, file: AccelerateFile | None
) -> list[nn.Module]:
    """Return the parts of the model that are gathered one at a time; empty without sharding."""
    if file is not None:
        return wrapped_by_file(model, file) if file.distributed_type == "FSDP" else []
    return units_of(model, config.sharding.unit_min_params) if config.strategy == "fsdp2" else []
