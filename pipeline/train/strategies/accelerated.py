"""Strategy `accelerate`: the model prepared by accelerate from its own file."""

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

from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.accelerator import make_accelerator
from pipeline.train.strategies.fsdp_units import groups_of, refresh_learned_dtypes, units_within
from pipeline.train.strategies.gathered_weights import gathered
from pipeline.train.strategies.replicated import take_apart
from pipeline.train.strategies.strategy import (
    MakeOptimizer,
    ParallelModel,
    Strategy,
    StrategyFacts,
    autocast,
    autocast_sharded,
    read_facts,
)
from slurm_jobs.base.errors import StageDataError
from slurm_jobs.formats.accelerate_file import AccelerateFile


class Accelerated(Strategy):
    """`strategy: accelerate`: a file of `accelerate config`, run by accelerate's own code.

    accelerate prepares the model. Loss scaling, clipping and updates stay in the loop, whose
    ranks skip a step together: accelerate would decide on each rank, and scales and weights
    would diverge.
    """

    name = "accelerate"

    def __init__(
        self, rank_device: RankDevice, path: str, file: AccelerateFile, ranks: Ranks
    ) -> None:
        super().__init__(rank_device)
        self._path = path
        self._accelerator: Accelerator = make_accelerator(path, file, rank_device, ranks)

    def parallelize(
        self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Let accelerate prepare the model."""
        model = self._shard(bare) if self._accelerator.is_fsdp2 else self._accelerator.prepare(bare)
        self._accelerator.free_memory()  # it would keep what it has prepared
        model.train()
        return ParallelModel(model=model, bare=bare, optimizer=make_optimizer(bare))

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
            raise StageDataError(message)
        thrown_away = torch.optim.SGD([next(bare.parameters())])
        model: nn.Module = self._accelerator.prepare(bare, thrown_away)[0]
        return model

    def reparallelize(
        self, parallel: ParallelModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Prepare ddp again; sharding rereads what is frozen."""
        if not isinstance(parallel.model, DistributedDataParallel):
            refresh_learned_dtypes(parallel.model)
            return super().reparallelize(parallel, make_optimizer)
        take_apart(parallel.model)
        self._unwrap(parallel)
        return self.parallelize(parallel.bare, make_optimizer)

    def _unwrap(self, parallel: ParallelModel) -> None:
        """Restore the model's `forward`; each `prepare` wraps it once more."""
        self._accelerator.unwrap_model(parallel.model, keep_fp32_wrapper=False)

    def forward_context(self) -> AbstractContextManager[None]:
        """Cast unsharded weights, also for fp16 on a CPU.

        On a GPU accelerate also casts within the forward pass, in the same way.
        """
        context = autocast_sharded if self._accelerator.is_fsdp2 else autocast
        return context(self._rank_device)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Reduce with the last microbatch."""
        if isinstance(model, FSDPModule):
            model.set_is_last_backward(is_last)
        return contextlib.nullcontext() if is_last else self._accelerator.no_sync(model)

    @contextlib.contextmanager
    def whole(self, parallel: ParallelModel) -> Iterator[VisionLanguageModel]:
        """Gather, if the model is sharded."""
        with gathered(parallel.model):
            yield parallel.bare

    def facts(self, parallel: ParallelModel) -> StrategyFacts:
        """Return the observed state."""
        kind = self._accelerator.distributed_type.value
        policies = [group.mp_policy for group in groups_of(parallel.model)]
        is_wrapped = isinstance(parallel.model, DistributedDataParallel)
        dtypes = [policy.param_dtype or torch.float32 for policy in policies]
        reduces = [policy.reduce_dtype or torch.float32 for policy in policies]
        facts = read_facts(
            parallel,
            mesh={"replicate": dist.get_world_size()} if is_wrapped else _mesh_of(parallel.bare),
            compute_dtypes=dtypes or [self._rank_device.dtype],
            reduce_dtypes=[torch.float32] if is_wrapped else reduces,
            num_units=len(units_within(parallel.model)),
        )
        return dataclasses.replace(facts, distributed_type=kind)

    def close(self, parallel: ParallelModel) -> None:
        """Free resources, and restore the model's `forward`."""
        super().close(parallel)
        self._unwrap(parallel)


def _mesh_of(bare: nn.Module) -> dict[str, int]:
    """Return ranks by dimension, from the first parameter on a mesh."""
    on_mesh = (p.device_mesh for p in bare.parameters() if isinstance(p, DTensor))
    mesh = next(on_mesh, None)
    if mesh is None:
        return {}
    return dict(zip(("replicate", "shard")[-mesh.ndim :], mesh.shape, strict=True))
