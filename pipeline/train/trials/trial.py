"""Inputs of a trial of steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.data.batch import ModelNeeds
from pipeline.data.dataset import ShardedDataset
from pipeline.data.loader import BatchReader
from pipeline.data.reading_plan import ReadingPlan
from pipeline.timing.span_log import SpanLog
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.strategy import ParallelModel, Strategy
from pipeline.train.training_data.batching import plan_reading, read_work_model
from slurm_jobs.formats.configs.train import TrainConfig

_TRAINED = (
    *("model", "adapters", "quantize", "learn", "levels"),
    *("global_batch_size", "num_lanes", "batching", "seed"),
)
"""Fields of the config that affect passes and checkpoints: none of `MAY_CHANGE`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialInputs:
    """Inputs of a trial."""

    config: TrainConfig
    dataset: ShardedDataset
    strategy: Strategy
    parallel: ParallelModel
    needs: ModelNeeds
    """Requirements of model and targets for batches."""
    rank_device: RankDevice
    ranks: Ranks
    num_local_ranks: int
    """Ranks of this node, which share its memory."""
    spans: SpanLog
    packs_dirs: tuple[Path, ...]

    @property
    def way(self) -> dict[str, Any]:
        """Arguments of `learn_nothing` for passing microbatches through the model."""
        return {
            "model": self.parallel.model,
            "layout": self.parallel.bare.layout,
            "strategy": self.strategy,
            "rank_device": self.rank_device,
        }

    def describe(self, *more: str) -> dict[str, Any]:
        """Describe the training, as JSON, to compare with that of a stored choice.

        `more`: Further fields of the config.
        """
        values = asdict(self.config)
        config = {name: values[name] for name in (*_TRAINED, *more)}
        return {"config": config, "dataset": self.dataset.info.fingerprint}

    def plan(self, config: TrainConfig) -> ReadingPlan:
        """Plan the reading of a config."""
        return plan_reading(
            config,
            self.dataset,
            model=read_work_model(self.parallel.bare, self.dataset),
            ranks=self.ranks,
            packs_dirs=self.packs_dirs,
        )

    def reader(self, plan: ReadingPlan, *, rank: int, **options: Any) -> BatchReader:
        """Open a reader that prefetches one step."""
        device = self.rank_device.device
        gpu = device if device.type == "cuda" else None
        return BatchReader(
            self.dataset, plan, rank=rank, needs=self.needs, gpu=gpu, prefetch=1, **options
        )
