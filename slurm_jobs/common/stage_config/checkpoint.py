"""Config of checkpoints: when and how the state of a training is saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_jobs.common.config_values import (
    Count,
    Positive,
    check_bounds,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """Schedule of checkpoints. A stop signal and the last step always save."""

    every_min: Positive | None = 30.0
    """Minutes between checkpoints, by rank 0's clock; null disables this trigger."""
    every_steps: Count | None = None
    """Steps between checkpoints, counted from the start of each phase; null disables this trigger.
    """
    mode: Literal["async", "sync"] = "async"
    """`async` copies the state and continues; a thread writes the copy, which takes host memory as
    large as the rank's share of weights and optimizer. `sync` waits until it is written."""
    keep_last: Count = 2
    """Number of complete checkpoints to keep; 2 or more survive a damaged newest one."""

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)
