"""What more GPUs gave, as plain values: PURE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_jobs.comparison.model import RunMeasure

Kind = Literal["strong", "weak", "neither"]
"""Strong: the same global batch on more ranks. Weak: the same batch a rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """All runs of a series on so many ranks, against the base of a curve."""

    num_ranks: int
    runs: tuple[RunMeasure, ...]
    tokens_per_s: float
    """Geometric mean over the runs."""
    speedup: float
    """Over the base; the base itself has 1."""
    ideal: float
    """Ranks over those of the base."""
    efficiency: float
    """`speedup` over `ideal`."""
    low: float | None
    """Of the interval of the efficiency; None with single runs."""
    high: float | None
    problems: tuple[str, ...]
    """Why these runs are no sound base."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Runs that differ in what scaling changes alone."""

    name: str
    """The settings that tell it from the other series; empty where there is one."""
    kind: Kind
    batch_note: str
    """How the batches go with the ranks, where they are neither."""
    as_given: tuple[Point, ...]
    """Against the runs on the fewest ranks."""
    honest: tuple[Point, ...]
    """Against the runs on the fewest ranks that are a sound base; empty where none is, and where
    it is the same curve."""
    notes: tuple[str, ...] = ()
    """What could not be looked at in the bases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """Every series, and what is to be known of all."""

    series: tuple[Series, ...]
    warnings: tuple[str, ...]
