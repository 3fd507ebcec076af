"""`strategy: single`: one rank has the whole model."""

from __future__ import annotations

import contextlib
import dataclasses
from contextlib import AbstractContextManager

from torch import nn

from pipeline.models import VisionLanguageModel
from pipeline.training.device import Workplace
from pipeline.training.strategies.base import (
    MakeOptimizer,
    Spread,
    StrategyFacts,
    autocast,
    read_facts,
)


class Single:
    """Implementation of `Strategy`."""

    name = "single"
    loads_once = False

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    def spread(self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer) -> Spread:
        """Implement `Strategy.spread`."""
        bare.to(self._workplace.device).train()
        return Spread(model=bare, bare=bare, optimizer=make_optimizer(bare))

    def respread(self, spread: Spread, make_optimizer: MakeOptimizer) -> Spread:
        """Implement `Strategy.respread`; every pass reads what is frozen."""
        return dataclasses.replace(spread, optimizer=make_optimizer(spread.bare))

    def forward_context(self) -> AbstractContextManager[None]:
        """Implement `Strategy.forward_context`."""
        return autocast(self._workplace)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:  # noqa: ARG002 - nothing is reduced
        """Implement `Strategy.microbatch`."""
        return contextlib.nullcontext()

    def whole(self, spread: Spread) -> AbstractContextManager[VisionLanguageModel]:
        """Implement `Strategy.whole`; the model is always unsharded."""
        return contextlib.nullcontext(spread.bare)

    def facts(self, spread: Spread) -> StrategyFacts:
        """Implement `Strategy.facts`."""
        return read_facts(spread, mesh={}, compute_dtypes=[self._workplace.dtype], reduce_dtypes=[])

    def close(self, spread: Spread) -> None:
        """Implement `Strategy.close`."""
        spread.optimizer.zero_grad()
