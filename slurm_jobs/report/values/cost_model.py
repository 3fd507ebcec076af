"""Values of a run's cost and of what is ahead of it."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.base.quantities import Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class CostPart:
    """One use of a training's GPUs."""

    name: str
    gpu_hours: float
    share: float
    """Share of the training's GPU-hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCost:
    """Allocated resources of one stage, busy or not."""

    stage: str
    gpu_hours: Quantity
    cpu_hours: Quantity
    money: Quantity
    parts: tuple[CostPart, ...]
    """Uses of GPUs by a stage that recorded steps; they add up to its GPU-hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostNumbers:
    """Cost of the run."""

    currency: str
    """Empty if the cluster profile has no price."""
    stages: tuple[StageCost, ...]
    gpu_hours: Quantity
    cpu_hours: Quantity
    money: Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Range of a number."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """Projection for a training: the rest of it, or a new one."""

    stage: str
    what: str
    """`to the end`, or `3 epochs`."""
    num_steps: int
    """Number of steps to make."""
    seconds: Span
    """From now to the end, or from the first start, including known waits in the queue."""
    num_starts: int
    """Further starts of its job that the time limit makes necessary, at most."""
    wait: Span | None
    """Part of `seconds` in the queue; None if no wait is known."""
    gpu_hours: Span | None
    """None if the stage requests no GPU."""
    money: Span | None
    """None without a price."""
    basis: str
    """Basis of the projection, in words."""
