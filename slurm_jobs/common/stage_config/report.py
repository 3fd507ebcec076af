"""Config of the built-in stage `report`."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import CountOrZero, check_bounds
from slurm_jobs.common.warmup import WARMUP_STEPS


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportConfig:
    """Contents of a run's report."""

    title: str | None = None
    """Heading of the page; by default the run's name."""

    warmup_steps: CountOrZero = WARMUP_STEPS
    """Steps at the start of each attempt that the step statistics leave out, because of
    compilation, cold caches and allocator growth."""

    def __post_init__(self) -> None:
        """Check that the warm-up is a valid count."""
        check_bounds(self)
