"""Config of a trial of `slurm-jobs tune`: steps of a training whose result is discarded."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import CountOrZero, check_bounds
from slurm_jobs.common.stage_config.train import TrainConfig

MEASURE_RUN = "measure"
"""Name of the trial among the entry points of the compute node; specs cannot use it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureConfig:
    """Config of a trial."""

    train: TrainConfig
    """Training with one phase, whose `num_steps` are run."""
    num_kept_steps: CountOrZero = 0
    """Above 0: microbatches of so many steps are read before the first one and reused, so that no
    data is read during the steps."""
    num_dropped_steps: CountOrZero = 0
    """Above 0: before the step `drop_before`, from 0, microbatches of so many steps are read and
    dropped, so that data read ahead during slow first steps does not feed the measured ones."""
    drop_before: CountOrZero = 0

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)
