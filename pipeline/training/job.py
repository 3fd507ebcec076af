"""What every part of the stage needs on a rank, in one value."""

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
    """What every part of the stage needs."""

    config: TrainConfig
    context: TaskContext
    spans: SpanLog
    workplace: Workplace
    ranks: Ranks
    began_unix_s: float
    """When this attempt began."""


def versions() -> dict[str, str]:
    """Of the libraries that numbers depend on."""
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
