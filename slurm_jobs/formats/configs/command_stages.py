"""Stages that commands submit, and the config and files of the one that tunes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slurm_jobs.formats.config import CheckedConfig, Positive

NODE_RUN = "pipeline.nodes.doctor_stage:run"
"""`run:` of the stage that inspects nodes."""
DRILL_RUN = "pipeline.nodes.doctor_stage:run_drill"
"""`run:` of the stage that is stopped and must continue."""
TUNE_RUN = "slurm_jobs.tuning.stage:run"
"""`run:` of the stage that tunes."""
RESULT_NAME = "tuning.json"
SPEC_NAME = "tuned.yaml"
"""Both in the stage's output folder."""

SAID = "said"
"""Among what the stage returns: its sentence, which the report shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneConfig(CheckedConfig):
    """Config of the stage that tunes; the verb writes it."""

    train: dict[str, Any]
    """The resolved config of the training, as its own stage would get it."""
    budget_min: Positive
    """Minutes for all trials together."""
    phase: int | None = None
    """Which of the training's phases is tried, from 0; None where it has none."""
    cpus_per_task: int = 1
    """Cores of each rank."""
