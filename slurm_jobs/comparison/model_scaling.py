"""Speedups over numbers of GPUs as plain values. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_jobs.comparison.model import RunMeasure

Kind = Literal["strong", "weak", "neither"]
"""Strong: the same global batch on more ranks. Weak: the same batch per rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """All runs of a series on so many ranks, against the base of a curve."""

    num_ranks: int
    runs: tuple[RunMeasure, ...]
    tokens_per_s: float
    """Geometric mean over the runs."""
    speedup: float
    """Speed over the base's; 1 for the base."""
    ideal: float
    """Ranks over those of the base."""
    efficiency: float
    """`speedup` over `ideal`."""
    low: float | None
    """Interval of the efficiency; None with single runs."""
    high: float | None
    problems: tuple[str, ...]
    """Reasons why these runs are no valid base."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Runs that differ only in what scaling changes."""

    name: str
    """Settings that distinguish it from the other series; empty if there is only one."""
    kind: Kind
    batch_note: str
    """Relation of batches to ranks, if it is neither strong nor weak."""
    as_given: tuple[Point, ...]
    """Against the runs on the fewest ranks."""
    honest: tuple[Point, ...]
    """Against the valid base with the fewest ranks; empty if there is none, or if the curve is the
    same."""
    notes: tuple[str, ...] = ()
    """Checks of the bases that were not possible."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """Every series, and notes on all."""

    series: tuple[Series, ...]
    warnings: tuple[str, ...]
