"""How a data set comes to each node's own disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_jobs.common.config_values import (
    Count,
    Positive,
    check_bounds,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StagingConfig:
    """Copying the data set to each node's own disk."""

    mode: Literal["beside", "before", "off"] = "beside"
    """`beside`: training begins at once, and reads from the shared file system what is not here
    yet. `before`: it begins when the copy is done. `"off"`, in quotes: it reads the shared file
    system."""
    num_threads: Count = 4
    """Shards that a node copies at a time."""
    max_mb_per_s: Positive | None = None
    """How fast a node may copy from the shared file system, in 1e6 bytes a second, over all jobs of
    the user there; null sets no limit."""
    max_gb: Positive | None = None
    """How much all copies of the user on a node may take, in 1e9 bytes; null: what is free."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)
