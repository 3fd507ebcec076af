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
    """As `Strategy`."""

    name = "single"
    loads_once = False

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    def spread(self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer) -> Spread:
        """As `Strategy`."""
        bare.to(self._workplace.device).train()
        return Spread(model=bare, bare=bare, optimizer=make_optimizer(bare))

    def respread(self, spread: Spread, make_optimizer: MakeOptimizer) -> Spread:
        """As `Strategy`; what is frozen is looked at in every pass."""
        return dataclasses.replace(spread, optimizer=make_optimizer(spread.bare))

    def forward_context(self) -> AbstractContextManager[None]:
        """As `Strategy`."""
        return autocast(self._workplace)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:  # noqa: ARG002 - nothing is reduced
        """As `Strategy`."""
        return contextlib.nullcontext()

    def whole(self, spread: Spread) -> AbstractContextManager[VisionLanguageModel]:
        """As `Strategy`; it is whole at all times."""
        return contextlib.nullcontext(spread.bare)

    def facts(self, spread: Spread) -> StrategyFacts:
        """As `Strategy`."""
        return read_facts(spread, mesh={}, compute_dtypes=[self._workplace.dtype], reduce_dtypes=[])

    def close(self, spread: Spread) -> None:
        """As `Strategy`."""
        spread.optimizer.zero_grad()
