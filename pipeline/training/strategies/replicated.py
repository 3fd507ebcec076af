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
    """As `Strategy`.

    Which parameters are averaged is settled when the model is spread: one that is frozen then and
    learns later would differ from rank to rank, so another choice of them needs another `spread`.
    """

    name = "ddp"
    loads_once = False

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    def spread(self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer) -> Spread:
        """As `Strategy`."""
        bare.to(self._workplace.device).train()
        return Spread(model=replicate(bare), bare=bare, optimizer=make_optimizer(bare))

    def respread(self, spread: Spread, make_optimizer: MakeOptimizer) -> Spread:
        """As `Strategy`: wrapped anew, or what learns now would differ from rank to rank."""
        assert isinstance(spread.model, DistributedDataParallel)
        # Its hooks would reduce beside those of the new one for as long as it lives.
        spread.model._remove_autograd_hooks()  # type: ignore[no-untyped-call]  # noqa: SLF001
        # Its buckets are as large as all gradients, and whoever still holds it would keep them.
        del spread.model.logger, spread.model.reducer
        return self.spread(spread.bare, make_optimizer)

    def forward_context(self) -> AbstractContextManager[None]:
        """As `Strategy`."""
        return autocast(self._workplace)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """As `Strategy`; the forward pass must lie within it, too."""
        assert isinstance(model, DistributedDataParallel)
        return contextlib.nullcontext() if is_last else model.no_sync()

    def whole(self, spread: Spread) -> AbstractContextManager[VisionLanguageModel]:
        """As `Strategy`; it is whole at all times."""
        return contextlib.nullcontext(spread.bare)

    def facts(self, spread: Spread) -> StrategyFacts:
        """As `Strategy`."""
        return read_facts(
            spread,
            mesh={"replicate": dist.get_world_size()},
            compute_dtypes=[self._workplace.dtype],
            reduce_dtypes=[torch.float32],
        )

    def close(self, spread: Spread) -> None:
        """As `Strategy`."""
        spread.optimizer.zero_grad()
