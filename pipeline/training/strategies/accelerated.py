"""`strategy: accelerate`: a file of `accelerate config`, run by accelerate's own code."""

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
    """Implementation of `Strategy`.

    accelerate prepares the model. Loss scaling, clipping and updates stay in the loop, whose
    ranks skip a step together: accelerate would decide on each rank, and scales and weights
    would diverge.
    """

    name = "accelerate"
    loads_once = False

    def __init__(self, workplace: Workplace, path: str, file: AccelerateFile, ranks: Ranks) -> None:
        self._workplace = workplace
        self._path = path
        self._accelerator: Accelerator = make_accelerator(path, file, workplace, ranks)

    def spread(self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer) -> Spread:
        """Implement `Strategy.spread`."""
        model = self._shard(bare) if self._accelerator.is_fsdp2 else self._accelerator.prepare(bare)
        self._accelerator.free_memory()  # it would keep what it has prepared
        model.train()
        return Spread(model=model, bare=bare, optimizer=make_optimizer(bare))

    def _shard(self, bare: VisionLanguageModel) -> nn.Module:
        """Shard with a temporary optimizer: accelerate shards no model without one.

        The real one is made from the sharded parameters. accelerate would identify its
        parameters by their addresses, which are equal for empty ones and those on "meta".

        Raises:
            StageConfigError: the model has no layer of a class in the file.
        """
        plugin = self._accelerator.state.fsdp_plugin
        known = sorted({type(layer).__name__ for tower in bare.towers() for layer in tower})
        if not plugin.transformer_cls_names_to_wrap:
            plugin.transformer_cls_names_to_wrap = known
        there = {type(module).__name__ for module in bare.modules()}
        missing = [name for name in plugin.transformer_cls_names_to_wrap if name not in there]
        if missing:
            message = (
                f"{self._path}: fsdp_transformer_layer_cls_to_wrap names {', '.join(missing)}, "
                f"but this model has none; its layers are {', '.join(known)}, the default "
                "without this key"
            )
            raise StageConfigError(message)
        thrown_away = torch.optim.SGD([next(bare.parameters())])
        model: nn.Module = self._accelerator.prepare(bare, thrown_away)[0]
        return model

    def respread(self, spread: Spread, make_optimizer: MakeOptimizer) -> Spread:
        """Implement `Strategy.respread`: ddp is prepared again; sharding rereads what is frozen."""
        if not isinstance(spread.model, DistributedDataParallel):
            look_at_what_learns(spread.model)
            return dataclasses.replace(spread, optimizer=make_optimizer(spread.bare))
        # Its hooks would reduce in addition to the new ones while it exists.
        spread.model._remove_autograd_hooks()  # type: ignore[no-untyped-call]  # noqa: SLF001
        # Its buckets are as large as all gradients, and any reference would keep them.
        del spread.model.logger, spread.model.reducer
        self._unwrap(spread)
        return self.spread(spread.bare, make_optimizer)

    def _unwrap(self, spread: Spread) -> None:
        """Restore the model's `forward`; each `prepare` wraps it once more."""
        self._accelerator.unwrap_model(spread.model, keep_fp32_wrapper=False)

    def forward_context(self) -> AbstractContextManager[None]:
        """Implement `Strategy.forward_context`; casts unsharded weights, also for fp16 on a CPU.

        On a GPU accelerate also casts within the forward pass, in the same way.
        """
        context = autocast_sharded if self._accelerator.is_fsdp2 else autocast
        return context(self._workplace)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Implement `Strategy.microbatch`."""
        if isinstance(model, FSDPModule):
            model.set_is_last_backward(is_last)
        return contextlib.nullcontext() if is_last else self._accelerator.no_sync(model)

    @contextlib.contextmanager
    def whole(self, spread: Spread) -> Iterator[VisionLanguageModel]:
        """Implement `Strategy.whole`."""
        with gathered(spread.model):
            yield spread.bare

    def facts(self, spread: Spread) -> StrategyFacts:
        """Implement `Strategy.facts`."""
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
        """Implement `Strategy.close`."""
        spread.optimizer.zero_grad()
        for unit in units_within(spread.model):
            unit.reshard()
        self._unwrap(spread)


def _mesh_of(bare: nn.Module) -> dict[str, int]:
    """Return ranks by dimension, from the first parameter on a mesh."""
    on_mesh = (p.device_mesh for p in bare.parameters() if isinstance(p, DTensor))
    mesh = next(on_mesh, None)
    if mesh is None:
        return {}
    names = ("replicate", "shard")[-mesh.ndim :]
    return dict(zip(names, mesh.shape, strict=True))
