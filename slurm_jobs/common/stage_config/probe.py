"""Config of the built-in stage `probe`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from slurm_jobs.common.config_values import Bounds, Count, check_bounds


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeConfig:
    """Measurement of a job's nodes, with one task on each node."""

    budget_s: Annotated[float, Bounds(ge=1, le=3600)] = 60.0
    """Approximate seconds for all measures of a node together; each has its share."""

    file_mb: Annotated[int, Bounds(ge=1, le=65536)] = 1024
    """Most data written to each file system at a time, in units of 1,048,576 bytes. It is always
    removed."""

    num_small_files: Annotated[int, Bounds(ge=1, le=10_000)] = 200
    """Most small files that are created, read and removed on each file system."""

    small_file_kb: Count = 4
    """Size of a small file, in units of 1,024 bytes."""

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)
