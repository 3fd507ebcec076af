"""`strategy: accelerate`: what a file of `accelerate config` says, by accelerate's own code."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from pipeline.models import VisionLanguageModel
from pipeline.training.device import Workplace
from pipeline.training.ranks import Ranks
from pipeline.training.strategies.accelerate_launch import make_accelerator
from pipeline.training.strategies.base import (
    MakeOptimizer,
    Spread,
    StrategyFacts,
    autocast,
    autocast_sharded,
    read_facts,
)
from pipeline.training.strategies.fsdp_groups import look_at_what_learns, units_within
from pipeline.training.strategies.fully_sharded import policies_of
from pipeline.training.strategies.gathering import gathered
from slurm_jobs.common.accelerate_file import AccelerateFile
from slurm_jobs.common.errors import StageConfigError


class Accelerated:
    """As `Strategy`.

    accelerate prepares the model. Loss scaling, clipping and updates stay the loop's, whose ranks
    skip a step together: on each rank for itself accelerate would let scales and weights part.
    """

    name = "accelerate"
    loads_once = False

    def __init__(self, workplace: Workplace, path: str, file: AccelerateFile, ranks: Ranks) -> None:
        self._workplace = workplace
        self._path = path
        self._accelerator: Accelerator = make_accelerator(path, file, workplace, ranks)

    def spread(self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer) -> Spread:
        """As `Strategy`."""
        model = self._shard(bare) if self._accelerator.is_fsdp2 else self._accelerator.prepare(bare)
        self._accelerator.free_memory()  # it would keep what it has prepared
        model.train()
        return Spread(model=model, bare=bare, optimizer=make_optimizer(bare))

    def _shard(self, bare: VisionLanguageModel) -> nn.Module:
        """With an optimizer that is thrown away: accelerate shards no model without one.

        The real one is made of what sharding made. accelerate would find its parameters again by
        their addresses, of which empty ones and those on "meta" have but one.

        Raises:
            StageConfigError: the model has no layer of a class that the file names.
        """
        plugin = self._accelerator.state.fsdp_plugin
        known = sorted({type(layer).__name__ for tower in bare.towers() for layer in tower})
        if not plugin.transformer_cls_names_to_wrap:
            plugin.transformer_cls_names_to_wrap = known
        there = {type(module).__name__ for module in bare.modules()}
        missing = [name for name in plugin.transformer_cls_names_to_wrap if name not in there]
        if missing:
            message = (
                f"{self._path}: fsdp_transformer_layer_cls_to_wrap names {', '.join(missing)}, of "
                f"which this model has none; its layers are {', '.join(known)}, which is what it "
                "is without this key"
            )
            raise StageConfigError(message)
        thrown_away = torch.optim.SGD([next(bare.parameters())])
        model: nn.Module = self._accelerator.prepare(bare, thrown_away)[0]
        return model

    def respread(self, spread: Spread, make_optimizer: MakeOptimizer) -> Spread:
        """As `Strategy`: under ddp prepared anew; sharded, what is frozen is always looked at."""
        if not isinstance(spread.model, DistributedDataParallel):
            look_at_what_learns(spread.model)
            return dataclasses.replace(spread, optimizer=make_optimizer(spread.bare))
        # Its hooks would reduce beside those of the new one for as long as it lives.
        spread.model._remove_autograd_hooks()  # type: ignore[no-untyped-call]  # noqa: SLF001
        # Its buckets are as large as all gradients, and whoever still holds it would keep them.
        del spread.model.logger, spread.model.reducer
        self._unwrap(spread)
        return self.spread(spread.bare, make_optimizer)

    def _unwrap(self, spread: Spread) -> None:
        """Give the model its own `forward` back; each `prepare` wraps it once more."""
        self._accelerator.unwrap_model(spread.model, keep_fp32_wrapper=False)

    def forward_context(self) -> AbstractContextManager[None]:
        """As `Strategy`; whole weights are cast here, because on a CPU accelerate leaves fp16 out.

        On a GPU it casts within the forward pass, too, in the same way.
        """
        context = autocast_sharded if self._accelerator.is_fsdp2 else autocast
        return context(self._workplace)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """As `Strategy`."""
        if isinstance(model, FSDPModule):
            model.set_is_last_backward(is_last)
        return contextlib.nullcontext() if is_last else self._accelerator.no_sync(model)

    @contextlib.contextmanager
    def whole(self, spread: Spread) -> Iterator[VisionLanguageModel]:
        """As `Strategy`."""
        with gathered(spread.model):
            yield spread.bare

    def facts(self, spread: Spread) -> StrategyFacts:
        """As `Strategy`."""
        kind = self._accelerator.distributed_type.value
        policies = list(policies_of(spread.model))
        is_wrapped = isinstance(spread.model, DistributedDataParallel)
        dtypes = [policy.param_dtype or torch.float32 for policy in policies]
        reduces = [policy.reduce_dtype or torch.float32 for policy in policies]
        facts = read_facts(
            spread,
            mesh={"replicate": dist.get_world_size()} if is_wrapped else _mesh_of(spread.bare),
            compute_dtypes=dtypes or [self._workplace.dtype],
            reduce_dtypes=[torch.float32] if is_wrapped else reduces,
            num_units=len(units_within(spread.model)),
        )
        return dataclasses.replace(facts, distributed_type=kind)

    def close(self, spread: Spread) -> None:
        """As `Strategy`."""
        spread.optimizer.zero_grad()
        for unit in units_within(spread.model):
            unit.reshard()
        self._unwrap(spread)


def _mesh_of(bare: nn.Module) -> dict[str, int]:
    """Ranks by dimension, of the first parameter that lies on a mesh."""
    on_mesh = (p.device_mesh for p in bare.parameters() if isinstance(p, DTensor))
    mesh = next(on_mesh, None)
    if mesh is None:
        return {}
    names = ("replicate", "shard")[-mesh.ndim :]
    return dict(zip(names, mesh.shape, strict=True))
