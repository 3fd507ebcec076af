"""Config of the recording of a node's load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from slurm_jobs.common.config_values import Bounds, check_bounds


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerConfig:
    """Readings of each node during training: GPUs, processor, memory, disks and network."""

    every_s: Annotated[float, Bounds(ge=0.1)] | None = 1.0
    """Seconds between two readings; null disables them."""

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)
