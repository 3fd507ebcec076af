"""Config of the built-in stage `report`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportConfig:
    """How the report of a run is made."""

    title: str | None = None
    """Heading of the page; the run's name if it is left out."""

    warmup_steps: int = 5
    """Steps at the start of each attempt that the step statistics leave out: they carry
    compilation, cold caches and allocator growth."""

    def __post_init__(self) -> None:
        """Refuse a warm-up that is no count."""
        if self.warmup_steps < 0:
            message = f"warmup_steps is {self.warmup_steps}; it counts steps and starts at 0"
            raise ValueError(message)
