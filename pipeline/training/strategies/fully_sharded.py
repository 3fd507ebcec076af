"""`strategy: fsdp2`: parameters, gradients and optimizer sharded, by torch's own `fully_shard`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from pipeline.models import VisionLanguageModel
from pipeline.training.device import Workplace
from pipeline.training.strategies.base import (
    MakeOptimizer,
    Spread,
    StrategyFacts,
    autocast_sharded,
    count_parameters,
    policy_of,
    read_facts,
)
from pipeline.training.strategies.fsdp_groups import groups_of, look_at_what_learns, units_within
from pipeline.training.strategies.gathering import gathered
from pipeline.training.strategies.loading import share_weights
from pipeline.training.strategies.mesh import Place, make_mesh
from slurm_jobs.common.stage_config.sharding import ShardingConfig


class FullySharded:
    """Implementation of `Strategy`."""

    name = "fsdp2"
    loads_once = True

    def __init__(
        self, workplace: Workplace, sharding: ShardingConfig, places: Sequence[Place]
    ) -> None:
        self._workplace = workplace
        self._sharding = sharding
        self._mesh: DeviceMesh = make_mesh(sharding.within, workplace.device.type, places)

    def spread(self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer) -> Spread:
        """Implement `Strategy.spread`; the fp32 weights stay the master copy."""
        weights = {} if next(bare.parameters()).is_meta else dict(bare.state_dict())
        options = {
            "mesh": self._mesh,
            "mp_policy": policy_of(self._workplace),
            "offload_policy": self._offload_policy(),
        }
        units = units_of(bare, self._sharding.unit_min_params)
        # Rank 0's moves its weights to the device and keeps its shard: the full weights are never
        # there.
        for unit in units:
            fully_shard(unit, reshard_after_forward=self._sharding.reshard_after_forward, **options)
        # Both passes need the rest at once: by default torch keeps it between them.
        fully_shard(bare, **options)
        share_weights(
            bare,
            weights,
            device=self._workplace.device,
            offload=self._sharding.cpu_offload,
        )
        prefetch_in_order(bare, units, self._sharding.forward_prefetch)
        bare.train()
        return Spread(model=bare, bare=bare, optimizer=make_optimizer(bare))

    def respread(self, spread: Spread, make_optimizer: MakeOptimizer) -> Spread:
        """Implement `Strategy.respread`; every pass reads what is frozen, and this its dtype."""
        look_at_what_learns(spread.model)
        return dataclasses.replace(spread, optimizer=make_optimizer(spread.bare))

    def forward_context(self) -> AbstractContextManager[None]:
        """Implement `Strategy.forward_context`; weights are cast when they are gathered."""
        return autocast_sharded(self._workplace)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Implement `Strategy.microbatch`."""
        assert isinstance(model, FSDPModule)
        reduces = is_last or self._sharding.accumulate == "sharded"
        model.set_requires_gradient_sync(reduces)
        model.set_is_last_backward(is_last)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def whole(self, spread: Spread) -> Iterator[VisionLanguageModel]:
        """Implement `Strategy.whole`; in the compute dtype, on the device."""
        with gathered(spread.model):
            yield spread.bare

    def facts(self, spread: Spread) -> StrategyFacts:
        """Implement `Strategy.facts`."""
        policies = list(policies_of(spread.model))
        names = self._mesh.mesh_dim_names or ()
        return read_facts(
            spread,
            mesh=dict(zip(names, self._mesh.shape, strict=True)),
            compute_dtypes=[policy.param_dtype or torch.float32 for policy in policies],
            reduce_dtypes=[policy.reduce_dtype or torch.float32 for policy in policies],
            num_units=len(units_within(spread.model)),
        )

    def close(self, spread: Spread) -> None:
        """Implement `Strategy.close`."""
        spread.optimizer.zero_grad()
        for unit in units_within(spread.model):
            unit.reshard()

    def _offload_policy(self) -> OffloadPolicy:
        if not self._sharding.cpu_offload:
            return OffloadPolicy()
        return CPUOffloadPolicy(pin_memory=self._workplace.device.type == "cuda")


def units_of(bare: VisionLanguageModel, min_params: int) -> list[nn.Module]:
    """Return layers that are gathered one at a time, in order of execution."""
    towers = (tower for tower in bare.towers() if count_parameters(tower) >= min_params)
    return list(chain.from_iterable(towers))


def prefetch_in_order(root: nn.Module, units: Sequence[Any], num_ahead: int) -> None:
    """Make each unit prefetch the next `num_ahead` ones before it computes."""
    if not num_ahead:
        return
    for place, unit in enumerate((root, *units)):
        unit.set_modules_to_forward_prefetch(list(units[place : place + num_ahead]))


def policies_of(model: nn.Module) -> Iterator[MixedPrecisionPolicy]:
    """Yield the policies of the units, as observed: there is no public API."""
    for group in groups_of(model):
        yield group.mp_policy
