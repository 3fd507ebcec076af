"""`strategy: ddp`: the whole model on every rank, by torch's `DistributedDataParallel`."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pipeline.models.computation.torch_versions import replicate
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.strategies.strategy import (
    MakeOptimizer,
    ParallelModel,
    Strategy,
    StrategyFacts,
    read_facts,
)


class Replicated(Strategy):
    """`strategy: ddp`: every rank has the whole model, and gradients are averaged over the ranks.

    The set of averaged parameters is fixed when the model is wrapped. A parameter that is
    frozen then and trained later would diverge between ranks, so another selection needs
    another `parallelize`.
    """

    name = "ddp"

    def parallelize(
        self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Move and wrap the model."""
        bare.to(self._rank_device.device).train()
        return ParallelModel(model=replicate(bare), bare=bare, optimizer=make_optimizer(bare))

    def reparallelize(
        self, parallel: ParallelModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Wrap again, or newly trained parameters would diverge."""
        assert isinstance(parallel.model, DistributedDataParallel)
        take_apart(parallel.model)
        return self.parallelize(parallel.bare, make_optimizer)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Reduce with the last microbatch; the forward pass must be within it, too."""
        assert isinstance(model, DistributedDataParallel)
        return contextlib.nullcontext() if is_last else model.no_sync()

    def facts(self, parallel: ParallelModel) -> StrategyFacts:
        """Return the observed state."""
        return read_facts(
            parallel,
            mesh={"replicate": dist.get_world_size()},
            compute_dtypes=[self._rank_device.dtype],
            reduce_dtypes=[torch.float32],
        )


def take_apart(wrapped: DistributedDataParallel) -> None:
    """Prepare a model for being wrapped again."""
    # Its hooks would reduce in addition to the new ones while it exists.
    wrapped._remove_autograd_hooks()  # noqa: SLF001
    # Its buckets are as large as all gradients, and any reference would keep them.
    del wrapped.logger, wrapped.reducer
