"""Probes of the nodes of a training as plain values. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.probes.comparing import SlowMeasure


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbedNode:
    """One node of a training, with its newest probe compared to similar nodes."""

    node: str
    measured_unix_s: float
    days_apart: float
    """Time between the probe and the training; 0 during the training."""
    other_busy_cores: float | None
    """Cores kept busy by others during the probe; None if negligible."""
    num_compared: int
    """Number of other probed nodes with the same hardware."""
    slow: tuple[SlowMeasure, ...]
    """The slowest first; empty if it is not slow, or there are too few nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeProbes:
    """Nodes of one training, and their probes."""

    nodes: tuple[str, ...]
    """All of them, probed or not."""
    probed: tuple[ProbedNode, ...]
    command: str
    """Command that probes and compares them; empty if no command helps."""
