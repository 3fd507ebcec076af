"""Parts of one training that follow each other, each with its own data, length and rate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from slurm_jobs.common.config_values import Count, InputPath, Positive, check_bounds
from slurm_jobs.common.stage_config.optimizer import OptimizerConfig, ScheduleConfig
from slurm_jobs.common.stage_config.reading import BatchingConfig

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseConfig:
    """One phase; what it leaves out is as the training has it."""

    name: str
    """Of the phase, in results and folders: small letters, digits, `-` and `_`."""
    learn: tuple[str, ...] | None = None
    """What learns in it, as the training's `learn`."""
    num_steps: Count | None = None
    """Optimizer steps; exactly one of `num_steps` and `num_epochs` is given."""
    num_epochs: Positive | None = None
    """Passes over its data set, rounded down to whole steps."""
    dataset: InputPath | None = None
    """Folder that `consolidate` wrote, by the same processor as the other phases'."""
    global_batch_size: Count | None = None
    """Samples in one optimizer step."""
    num_microbatches: Count | Literal["auto"] | None = None
    """Into how many pieces each rank cuts its share of a step; `auto` as the training's."""
    batching: BatchingConfig | None = None
    """Which samples share a batch, and which a row of it."""
    optimizer: OptimizerConfig | None = None
    """AdamW's settings; its state begins anew with each phase."""
    schedule: ScheduleConfig | None = None
    """The learning rate as a function of the phase's own steps."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, naming field, value and remedy."""
        check_bounds(self)
        if not _NAME.fullmatch(self.name):
            message = f"name is {self.name!r}: use small letters, digits, - and _ (projector)"
            raise ValueError(message)
        if (self.num_steps is None) == (self.num_epochs is None):
            given = "neither is" if self.num_steps is None else "both are"
            message = (
                f"phase {self.name}: of num_steps and num_epochs {given} given: give exactly one"
            )
            raise ValueError(message)
