"""What a trial of `slurm-jobs tune` is told: steps of a training, of which nothing is kept."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import CountOrZero, check_bounds
from slurm_jobs.common.stage_config.train import TrainConfig

MEASURE_RUN = "measure"
"""Its name among the entry points of the compute node; no spec can ask for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureConfig:
    """Config of a trial."""

    train: TrainConfig
    """One phase; its `num_steps` are those that are made."""
    num_kept_steps: CountOrZero = 0
    """Above 0: microbatches of so many steps are read before the first one, and used again and
    again, so that nothing is read while steps are made."""
    num_dropped_steps: CountOrZero = 0
    """Above 0: before the step `drop_before`, from 0, microbatches of so many steps are read and
    dropped. So what was read ahead in slow first steps feeds none of those that are measured."""
    drop_before: CountOrZero = 0

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)
