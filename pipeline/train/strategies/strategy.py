"""Interface of all strategies for training."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from pipeline.models.computation.compiling import count_compiled
from pipeline.models.computation.recompute import count_recomputed
from pipeline.models.finetuning.packed_linear import quantized_layers
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.strategies.fsdp_units import units_within

MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelModel:
    """Model that a strategy has sharded or replicated over the ranks, and its optimizer."""

    model: nn.Module
    """Model that the loop calls, with the signature of `bare`."""
    bare: VisionLanguageModel
    """Without wrappers: its names are those of checkpoints and exports."""
    optimizer: torch.optim.Optimizer
    """Optimizer of the parameters that `bare` has now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyFacts:
    """Observed state of the trained model."""

    model_class: str
    """Class of the called model."""
    mesh: Mapping[str, int]
    """Ranks by dimension; empty without one."""
    placements: Mapping[str, int]
    """Number of parameters by placement: `Shard(dim=0)`, or `whole`."""
    dtypes: Mapping[str, int]
    """Number of parameters by dtype."""
    devices: Mapping[str, int]
    """Number of parameters by device type."""
    num_units: int
    """Parts of the model that are gathered one at a time; 0 without sharding."""
    compute_dtypes: tuple[str, ...]
    """Dtypes of forward and backward passes; one, if all units agree."""
    reduce_dtypes: tuple[str, ...]
    """Dtypes of gradient reduction; empty without one."""
    num_recomputed: int
    """Layers that are recomputed in the backward pass."""
    num_compiled: int
    """Layers that are compiled."""
    distributed_type: str = ""
    """Type that accelerate reports; empty without it."""


class Strategy:
    """Distributes a model over the ranks; all ranks call its methods together.

    The methods here are those of an unsharded model.
    """

    name: str
    """Name in the config."""
    loads_once = False
    """True if only rank 0 has weights, and other ranks build the model on "meta"."""

    def __init__(self, rank_device: RankDevice) -> None:
        self._rank_device = rank_device

    def parallelize(
        self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Move the model to its devices, then make the optimizer.

        In this order: sharding replaces the parameters, and an earlier optimizer would silently
        update parameters that are no longer used.

        `bare` is on the CPU, equal on all ranks, or as `loads_once` requires; it is changed in
        place. `make_optimizer` is called with it when its parameters are the final ones.
        """
        raise NotImplementedError

    def reparallelize(
        self, parallel: ParallelModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Return the model with other trained parameters, and a new optimizer for them."""
        return dataclasses.replace(parallel, optimizer=make_optimizer(parallel.bare))

    def forward_context(self) -> AbstractContextManager[None]:
        """Return the context for each forward pass."""
        return autocast(self._rank_device)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Return the context for a microbatch; gradients are reduced with the last one."""
        raise NotImplementedError

    def whole(self, parallel: ParallelModel) -> AbstractContextManager[VisionLanguageModel]:
        """Provide the model with full weights on this rank, for passes without gradients.

        Entered and left by all ranks at once; within, each may run different passes.
        """
        return contextlib.nullcontext(parallel.bare)

    def facts(self, parallel: ParallelModel) -> StrategyFacts:
        """Return the observed state."""
        raise NotImplementedError

    def close(self, parallel: ParallelModel) -> None:
        """Free resources that only training needs, after the last step."""
        parallel.optimizer.zero_grad()
        for unit in units_within(parallel.model):
            unit.reshard()


def policy_of(rank_device: RankDevice) -> MixedPrecisionPolicy:
    """Return the dtypes in which units of `fully_shard` gather and reduce.

    Under fp16 autocast casts the inputs of products, and units do not cast their inputs: the
    residual stream stays fp32 (see `pipeline.models.computation.fp32_residual`).
    """
    return MixedPrecisionPolicy(
        param_dtype=rank_device.dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=rank_device.dtype != torch.float16,
    )


def autocast_sharded(rank_device: RankDevice) -> AbstractContextManager[None]:
    """Return the context of a forward pass with weights that are cast when gathered."""
    return autocast(rank_device) if rank_device.dtype == torch.float16 else contextlib.nullcontext()


def autocast(rank_device: RankDevice) -> AbstractContextManager[None]:
    """Return the context of a forward pass with unsharded fp32 weights; nothing under fp32."""
    if rank_device.dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(rank_device.device.type, dtype=rank_device.dtype)


def read_facts(
    parallel: ParallelModel,
    *,
    mesh: Mapping[str, int],
    compute_dtypes: Iterable[torch.dtype],
    reduce_dtypes: Iterable[torch.dtype],
    num_units: int = 0,
) -> StrategyFacts:
    """Combine facts of the parameters with those that only the strategy knows."""
    parameters = list(parallel.bare.parameters())
    return StrategyFacts(
        model_class=type(parallel.model).__name__,
        mesh=mesh,
        placements=dict(Counter(placement_of(parameter) for parameter in parameters)),
        dtypes=dict(Counter(str(parameter.dtype) for parameter in parameters)),
        devices=dict(Counter(parameter.device.type for parameter in parameters)),
        num_units=num_units,
        compute_dtypes=tuple(sorted({str(dtype) for dtype in compute_dtypes})),
        reduce_dtypes=tuple(sorted({str(dtype) for dtype in reduce_dtypes})),
        num_recomputed=count_recomputed(parallel.bare),
        num_compiled=count_compiled(parallel.bare),
    )


def placement_of(parameter: torch.Tensor) -> str:
    """Return `Shard(dim=0)`, `Replicate(), Shard(dim=0)`, or `whole`."""
    if not isinstance(parameter, DTensor):
        return "whole"
    return ", ".join(repr(placement) for placement in parameter.placements)


def count_parameters(modules: Iterable[nn.Module]) -> int:
    """Count parameters of all modules, unsharded and unpacked."""
    num = 0
    for module in modules:
        num += sum(parameter.numel() for parameter in module.parameters())
        for _, layer in quantized_layers(module):
            num += layer.num_weights - layer.weight.numel()
    return num
