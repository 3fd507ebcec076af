"""`strategy: fsdp2`: parameters, gradients and optimizer sharded, by torch's own `fully_shard`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard

from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.strategies.fsdp_units import groups_of, refresh_learned_dtypes, units_within
from pipeline.train.strategies.gathered_weights import gathered
from pipeline.train.strategies.rank_mesh import RankPlace, make_mesh
from pipeline.train.strategies.strategy import (
    MakeOptimizer,
    ParallelModel,
    Strategy,
    StrategyFacts,
    autocast_sharded,
    count_parameters,
    policy_of,
    read_facts,
)
from pipeline.train.strategies.weight_distribution import share_weights
from slurm_jobs.formats.configs.training_parts import ShardingConfig


class FullySharded(Strategy):
    """`strategy: fsdp2`."""

    name = "fsdp2"
    loads_once = True

    def __init__(
        self, rank_device: RankDevice, sharding: ShardingConfig, places: Sequence[RankPlace]
    ) -> None:
        super().__init__(rank_device)
        self._sharding = sharding
        self._mesh: DeviceMesh = make_mesh(sharding.within, rank_device.device.type, places)

    def parallelize(
        self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Shard; the fp32 weights stay the master copy."""
        sharding, device = self._sharding, self._rank_device.device
        weights = {} if next(bare.parameters()).is_meta else dict(bare.state_dict())
        offload = CPUOffloadPolicy(pin_memory=device.type == "cuda")
        options: dict[str, Any] = {
            "mesh": self._mesh,
            "mp_policy": policy_of(self._rank_device),
            "offload_policy": offload if sharding.cpu_offload else OffloadPolicy(),
        }
        units = units_of(bare, sharding.unit_min_params)
        # Rank 0's moves its weights to the device and keeps its shard: the full weights are never
        # there.
        for unit in units:
            fully_shard(unit, reshard_after_forward=sharding.reshard_after_forward, **options)
        # Both passes need the rest at once: by default torch keeps it between them.
        fully_shard(bare, **options)
        share_weights(bare, weights, device=device, offload=sharding.cpu_offload)
        prefetch_in_order(bare, units, sharding.forward_prefetch)
        bare.train()
        return ParallelModel(model=bare, bare=bare, optimizer=make_optimizer(bare))

    def reparallelize(
        self, parallel: ParallelModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Every pass reads what is frozen, and this its dtype."""
        refresh_learned_dtypes(parallel.model)
        return super().reparallelize(parallel, make_optimizer)

    def forward_context(self) -> AbstractContextManager[None]:
        """Weights are cast when they are gathered."""
        return autocast_sharded(self._rank_device)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Set what the microbatch reduces."""
        assert isinstance(model, FSDPModule)
        reduces = is_last or self._sharding.accumulate == "sharded"
        model.set_requires_gradient_sync(reduces)
        model.set_is_last_backward(is_last)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def whole(self, parallel: ParallelModel) -> Iterator[VisionLanguageModel]:
        """Gather; in the compute dtype, on the device."""
        with gathered(parallel.model):
            yield parallel.bare

    def facts(self, parallel: ParallelModel) -> StrategyFacts:
        """Return the observed state."""
        policies = [group.mp_policy for group in groups_of(parallel.model)]
        names = self._mesh.mesh_dim_names or ()
        return read_facts(
            parallel,
            mesh=dict(zip(names, self._mesh.shape, strict=True)),
            compute_dtypes=[policy.param_dtype or torch.float32 for policy in policies],
            reduce_dtypes=[policy.reduce_dtype or torch.float32 for policy in policies],
            num_units=len(units_within(parallel.model)),
        )


def units_of(bare: VisionLanguageModel, min_params: int) -> list[nn.Module]:
    """Return layers that are gathered one at a time, in order of execution."""
    towers = (tower for tower in bare.towers() if count_parameters(tower) >= min_params)
    return list(chain.from_iterable(towers))


def prefetch_in_order(root: Any, units: Sequence[Any], num_ahead: int) -> None:
    """Make each unit prefetch the next `num_ahead` ones before it computes."""
    for place, unit in enumerate((root, *units) if num_ahead else ()):
        unit.set_modules_to_forward_prefetch(list(units[place : place + num_ahead]))
