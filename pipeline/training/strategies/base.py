"""What training asks of every strategy."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from pipeline.models import VisionLanguageModel
from pipeline.models.compiling import count_compiled
from pipeline.models.quantized import quantized_layers
from pipeline.models.recompute import count_recomputed
from pipeline.training.device import Workplace

MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """A model and its optimizer, on the ranks."""

    model: nn.Module
    """What the loop calls, as it would call `bare`."""
    bare: VisionLanguageModel
    """Without wrappers: its names are those of checkpoints and exports."""
    optimizer: torch.optim.Optimizer
    """Of the parameters that `bare` has now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyFacts:
    """What really happened, read from the model that is trained."""

    model_class: str
    """Of what the loop calls."""
    mesh: Mapping[str, int]
    """Ranks by dimension; empty without one."""
    placements: Mapping[str, int]
    """How many parameters lie how: `Shard(dim=0)`, or `whole`."""
    dtypes: Mapping[str, int]
    """How many parameters are stored as what."""
    devices: Mapping[str, int]
    """How many parameters lie on which type of device."""
    num_units: int
    """Parts of the model that are gathered one at a time; 0 where nothing is."""
    compute_dtypes: tuple[str, ...]
    """What forward and backward passes compute in; one, if all units agree."""
    reduce_dtypes: tuple[str, ...]
    """What gradients are reduced as; empty where they are not."""
    num_recomputed: int
    """Layers that are computed again in the backward pass."""
    num_compiled: int
    """Layers that are compiled."""
    distributed_type: str = ""
    """What accelerate says that it does; empty without it."""


class Strategy(Protocol):
    """Spreads a model over the ranks; its methods are called by all ranks alike."""

    name: str
    """As the config has it."""
    loads_once: bool
    """Whether weights are taken from rank 0 alone, and other ranks build the model on "meta"."""

    def spread(self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer) -> Spread:
        """Put the model where it trains, then make the optimizer.

        In this order: sharding replaces the parameters, and an optimizer made before would go on
        updating those that nothing uses any more, without an error.

        Args:
            bare: On the CPU, equal on all ranks, or as `loads_once` says; it is changed in place.
            make_optimizer: Called with `bare` when its parameters are the final ones.
        """

    def respread(self, spread: Spread, make_optimizer: MakeOptimizer) -> Spread:
        """The same model with another choice of what learns, and a new optimizer for that."""

    def forward_context(self) -> AbstractContextManager[None]:
        """Around each forward pass."""

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of a microbatch; gradients are reduced with the last one.

        Args:
            model: That of `Spread`.
            is_last: Of its step.
        """

    def whole(self, spread: Spread) -> AbstractContextManager[VisionLanguageModel]:
        """The model with all its weights on this rank, for passes without gradients.

        Entered and left by all ranks at once; within, each may compute what it likes.
        """

    def facts(self, spread: Spread) -> StrategyFacts:
        """What really happened."""

    def close(self, spread: Spread) -> None:
        """After the last step: give back what training alone needs."""


def policy_of(workplace: Workplace) -> MixedPrecisionPolicy:
    """Return what units of `fully_shard` gather and reduce their weights in.

    Under fp16 autocast casts what products need, and units leave their inputs as they are: the
    residual stream stays fp32 (see `pipeline.models.residual`).
    """
    return MixedPrecisionPolicy(
        param_dtype=workplace.dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=workplace.dtype != torch.float16,
    )


def autocast_sharded(workplace: Workplace) -> AbstractContextManager[None]:
    """For a forward pass with weights that are cast when they are gathered."""
    return autocast(workplace) if workplace.dtype == torch.float16 else contextlib.nullcontext()


def autocast(workplace: Workplace) -> AbstractContextManager[None]:
    """For a forward pass with whole fp32 weights; nothing under fp32."""
    if workplace.dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(workplace.device.type, dtype=workplace.dtype)


def read_facts(
    spread: Spread,
    *,
    mesh: Mapping[str, int],
    compute_dtypes: Iterable[torch.dtype],
    reduce_dtypes: Iterable[torch.dtype],
    num_units: int = 0,
) -> StrategyFacts:
    """Facts of the parameters, with what the strategy knows of the rest."""
    parameters = list(spread.bare.parameters())
    return StrategyFacts(
        model_class=type(spread.model).__name__,
        mesh=mesh,
        placements=dict(Counter(placement_of(parameter) for parameter in parameters)),
        dtypes=dict(Counter(str(parameter.dtype) for parameter in parameters)),
        devices=dict(Counter(parameter.device.type for parameter in parameters)),
        num_units=num_units,
        compute_dtypes=tuple(sorted({str(dtype) for dtype in compute_dtypes})),
        reduce_dtypes=tuple(sorted({str(dtype) for dtype in reduce_dtypes})),
        num_recomputed=count_recomputed(spread.bare),
        num_compiled=count_compiled(spread.bare),
    )


def placement_of(parameter: torch.Tensor) -> str:
    """`Shard(dim=0)`, `Replicate(), Shard(dim=0)`, or `whole`."""
    if not isinstance(parameter, DTensor):
        return "whole"
    return ", ".join(repr(placement) for placement in parameter.placements)


def count_parameters(modules: Iterable[nn.Module]) -> int:
    """Parameters of all modules, sharded ones counted whole, and packed ones unpacked."""
    num = 0
    for module in modules:
        num += sum(parameter.numel() for parameter in module.parameters())
        for _, layer in quantized_layers(module):
            num += layer.num_weights - layer.weight.numel()
    return num
