"""Config of the copy of a data set to each node's own disk."""

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
    """Copy of the data set to each node's own disk."""

    mode: Literal["beside", "before", "off"] = "beside"
    """`beside`: training begins at once, and reads missing shards from the shared file system.
    `before`: it begins when the copy is done. `"off"`, in quotes: it reads the shared file system.
    """
    num_threads: Count = 4
    """Shards that a node copies at a time."""
    max_mb_per_s: Positive | None = None
    """Rate limit of a node's copies from the shared file system, in 1e6 bytes a second, over all
    jobs of the user there; null for no limit."""
    max_gb: Positive | None = None
    """Size limit of all copies of the user on a node, in 1e9 bytes; null for all free space."""

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)
