"""Config of the built-in stage `report`."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import CountOrZero, check_bounds
from slurm_jobs.common.warmup import WARMUP_STEPS


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportConfig:
    """How the report of a run is made."""

    title: str | None = None
    """Heading of the page; the run's name if it is left out."""

    warmup_steps: CountOrZero = WARMUP_STEPS
    """Steps at the start of each attempt that the step statistics leave out: they carry
    compilation, cold caches and allocator growth."""

    def __post_init__(self) -> None:
        """Refuse a warm-up that is no count."""
        check_bounds(self)
