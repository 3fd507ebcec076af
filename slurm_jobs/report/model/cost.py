"""What a run took of the cluster, and what it will take: plain values. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.report.model.values import Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class CostPart:
    """What GPUs were held for, of one training."""

    name: str
    gpu_hours: float
    share: float
    """Of the training's GPU-hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCost:
    """What one stage took: allocated, busy or not."""

    stage: str
    gpu_hours: Quantity
    cpu_hours: Quantity
    money: Quantity
    parts: tuple[CostPart, ...]
    """Of a stage that recorded steps; they add up to its GPU-hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostNumbers:
    """What the run took."""

    currency: str
    """Empty where the cluster profile names no price."""
    stages: tuple[StageCost, ...]
    gpu_hours: Quantity
    cpu_hours: Quantity
    money: Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """From, and up to."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """What a training is still to take, or would take anew."""

    stage: str
    what: str
    """`to the end`, or `3 epochs`."""
    num_steps: int
    """That are to be made."""
    seconds: Span
    """From now to the end, or from the first start, waits in the queue included as far as they are
    known."""
    num_starts: int
    """Further starts of its job that the time limit makes necessary, at most."""
    wait: Span | None
    """Of `seconds`, in the queue; None where no wait is known, and none is in it."""
    gpu_hours: Span | None
    """None where the stage asks for no GPU."""
    money: Span | None
    """None without a price."""
    basis: str
    """What it rests on, in words."""
