"""How often the load of a node is written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from slurm_jobs.common.config_values import Bounds, check_bounds


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerConfig:
    """Readings of each node beside training: GPUs, processor, memory, disks and network."""

    every_s: Annotated[float, Bounds(ge=0.1)] | None = 1.0
    """Seconds between two readings; null switches them off."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)
