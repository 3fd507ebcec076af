"""Sharding of a model over ranks, as far as it determines memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.memory.tensor_sizes import TensorSizes
from pipeline.train.strategies.fully_sharded import units_of
from pipeline.train.strategies.rank_mesh import RankPlace, shape_by_nodes
from pipeline.train.strategy_checks.expected_facts import wrapped_by_file
from slurm_jobs.formats.accelerate_file import AccelerateFile
from slurm_jobs.formats.configs.train import TrainConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """Sharding of a config, or of a file of accelerate."""

    is_sharded: bool
    """True if weights are gathered for computing; unsharded ones are cast by autocast."""
    num_shards: int = 1
    """Ranks over which weights, gradients and optimizer are sharded."""
    keeps_gathered: bool = False
    """True if all gathered weights stay until the backward pass."""
    num_ahead: int = 0
    """Layers that are prefetched."""
    accumulates_whole: bool = False
    """True if gradients are unsharded between the microbatches of a step."""
    offloads: bool = False
    """True if shards, gradients and optimizer are in the node's memory."""

    def num_on_first(self, tensor: TensorSizes) -> int:
        """Return the numbers on the first rank, the most of any: rows are dealt in equal runs."""
        if not self.is_sharded or not tensor.shape:
            return tensor.num_stored
        return math.ceil(tensor.shape[0] / self.num_shards) * math.prod(tensor.shape[1:])


def sharing_of(
    config: TrainConfig, file: AccelerateFile | None, places: Sequence[RankPlace]
) -> Sharing:
    """Return the strategy's sharding on these ranks; `file` is that of `strategy: accelerate`.

    Raises:
        StageConfigError: `sharding.within` is `node`, but nodes have unequal ranks.
    """
    sharding = config.sharding
    if file is not None and file.distributed_type == "FSDP":
        return Sharing(
            is_sharded=True,
            num_shards=len(places) // file.num_replicas,
            accumulates_whole=True,
            offloads=file.offloads,
        )
    if file is not None or config.strategy != "fsdp2":
        return Sharing(is_sharded=False)
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
