"""`strategy: single`: one rank has the whole model."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

from torch import nn

from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.strategies.strategy import (
    MakeOptimizer,
    ParallelModel,
    Strategy,
    StrategyFacts,
    read_facts,
)


class Single(Strategy):
    """`strategy: single`: one rank has the whole model."""

    name = "single"

    def parallelize(
        self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Move the model."""
        bare.to(self._rank_device.device).train()
        return ParallelModel(model=bare, bare=bare, optimizer=make_optimizer(bare))

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:  # noqa: ARG002 - nothing is reduced
        """Do nothing."""
        return contextlib.nullcontext()

    def facts(self, parallel: ParallelModel) -> StrategyFacts:
        """Return the observed state."""
        return read_facts(
            parallel, mesh={}, compute_dtypes=[self._rank_device.dtype], reduce_dtypes=[]
        )
