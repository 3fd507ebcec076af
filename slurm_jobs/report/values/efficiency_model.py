"""Values of the efficiency of a stage: what it requested of Slurm, used, and wasted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_jobs.base.quantities import Quantity

WasteKind = Literal["failed", "repeated", "idle"]
"""`failed`: work that left nothing because its attempt failed or was cancelled. `repeated`: work
that was done again, or that another job replaced. `idle`: allocated for the rest of the work, but
not used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """A request to Slurm, and its use."""

    requested: Quantity
    """Of one job or array task, in the newest request."""
    used: Quantity
    share: Quantity
    """Used over requested, as a fraction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waste:
    """Hours that were wasted in one way."""

    kind: WasteKind
    cpu_hours: Quantity
    gpu_hours: Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryExcess:
    """Starts whose largest task alone used more memory than was requested for its whole node."""

    num_over: int
    num_known: int
    """Starts with a known request and use that were not killed at their limit."""
    used_bytes: float
    """Largest use of a task."""
    requested_bytes: float
    """Request per node of the start with that task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageEfficiency:
    """Requests, use and waste of one stage over all of its starts."""

    stage: str
    is_former: bool
    """True for a stage of an earlier plan that the spec no longer has."""
    cpu: Use
    """Cores; used: the mean number that were busy."""
    memory: Use
    """Bytes per node; used: the largest task."""
    is_largest_killed: bool
    """True if that task was killed at its memory limit, so it needs more."""
    time: Use
    """Seconds; requested: the limit; used: the longest job."""
    gpu: Use
    """GPUs; used: the mean number on which any kernel ran."""
    cpu_hours: Quantity
    """Allocated, as are GPU-hours."""
    gpu_hours: Quantity
    waste: tuple[Waste, ...]
    """One of each kind; no second is in two of them."""
    memory_excess: MemoryExcess | None
    """None if no start used more memory than it requested, as far as is known."""
    tasks_per_node: int
