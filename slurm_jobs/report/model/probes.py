"""What a report says of probes of the nodes that a training used: plain values. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.probes.comparing import SlowMeasure


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbedNode:
    """One node of a training, as its newest probe has it beside nodes of its kind."""

    node: str
    measured_unix_s: float
    days_apart: float
    """Between the probe and the training; 0 while that ran."""
    other_busy_cores: float | None
    """Kept busy by others when it was measured; None where that is not worth telling."""
    num_compared: int
    """Other nodes of the same hardware that were probed, too."""
    slow: tuple[SlowMeasure, ...]
    """The slowest first; empty where it is as the others, or there are too few of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeProbes:
    """The nodes of one training, and what probes say of them."""

    nodes: tuple[str, ...]
    """All of them, whether or not they were probed."""
    probed: tuple[ProbedNode, ...]
    command: str
    """What a user types to have them probed and compared; empty where no command would do."""
