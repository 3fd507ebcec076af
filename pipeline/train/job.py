"""Values that every part of the stage needs on a rank."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

from pipeline.timing.span_log import SpanLog
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.records.task_context import TaskContext


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Common context of the stage on a rank."""

    config: TrainConfig
    context: TaskContext
    spans: SpanLog
    rank_device: RankDevice
    ranks: Ranks
    began_unix_s: float
    """Start of this attempt."""


def versions() -> dict[str, str]:
    """Return versions of the libraries that affect results."""
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
