"""Values that every part of the stage needs on a rank."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

from pipeline.timing import SpanLog
from pipeline.training.device import Workplace
from pipeline.training.ranks import Ranks
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.stage_config.train import TrainConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Common context of the stage on a rank."""

    config: TrainConfig
    context: TaskContext
    spans: SpanLog
    workplace: Workplace
    ranks: Ranks
    began_unix_s: float
    """Start of this attempt."""


def versions() -> dict[str, str]:
    """Return versions of the libraries that affect results."""
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
