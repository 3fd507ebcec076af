"""`strategy: ddp`: every rank has the whole model, and gradients are averaged over the ranks."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pipeline.library_versions import replicate
from pipeline.models import VisionLanguageModel
from pipeline.training.device import Workplace
from pipeline.training.strategies.base import (
    MakeOptimizer,
    Spread,
    StrategyFacts,
    autocast,
    read_facts,
)


class Replicated:
    """Implementation of `Strategy`.

    The set of averaged parameters is fixed when the model is wrapped. A parameter that is
    frozen then and trained later would diverge between ranks, so another selection needs
    another `spread`.
    """

    name = "ddp"
    loads_once = False

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    def spread(self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer) -> Spread:
        """Implement `Strategy.spread`."""
        bare.to(self._workplace.device).train()
        return Spread(model=replicate(bare), bare=bare, optimizer=make_optimizer(bare))

    def respread(self, spread: Spread, make_optimizer: MakeOptimizer) -> Spread:
        """Implement `Strategy.respread`: wrap again, or newly trained parameters would diverge."""
        assert isinstance(spread.model, DistributedDataParallel)
        # Its hooks would reduce in addition to the new ones while it exists.
        spread.model._remove_autograd_hooks()  # type: ignore[no-untyped-call]  # noqa: SLF001
        # Its buckets are as large as all gradients, and any reference would keep them.
        del spread.model.logger, spread.model.reducer
        return self.spread(spread.bare, make_optimizer)

    def forward_context(self) -> AbstractContextManager[None]:
        """Implement `Strategy.forward_context`."""
        return autocast(self._workplace)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Implement `Strategy.microbatch`; the forward pass must be within it, too."""
        assert isinstance(model, DistributedDataParallel)
        return contextlib.nullcontext() if is_last else model.no_sync()

    def whole(self, spread: Spread) -> AbstractContextManager[VisionLanguageModel]:
        """Implement `Strategy.whole`; the model is always unsharded."""
        return contextlib.nullcontext(spread.bare)

    def facts(self, spread: Spread) -> StrategyFacts:
        """Implement `Strategy.facts`."""
        return read_facts(
            spread,
            mesh={"replicate": dist.get_world_size()},
            compute_dtypes=[self._workplace.dtype],
            reduce_dtypes=[torch.float32],
        )

    def close(self, spread: Spread) -> None:
        """Implement `Strategy.close`."""
        spread.optimizer.zero_grad()
