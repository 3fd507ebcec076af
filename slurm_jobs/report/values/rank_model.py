"""Numbers that compare the ranks of a training as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RankNumbers:
    """Means of one rank on one node; a rank that ran on several nodes has several."""

    rank: int
    node: str
    num_steps: int
    """Measured steps of the means."""
    attempts: tuple[int, ...]
    """Attempts in which it made them, ascending."""
    step_mean_s: float
    step_p95_s: float
    own_mean_s: float
    """Part of the mean step without timed waits for other ranks."""
    own_excess_s: float | None
    """Excess of own work per step over the mean of all ranks in the same attempts; None if none of
    these has the records of all its ranks."""
    data_excess_s: float | None
    """Excess of the wait for data."""
    core_wait_mean_s: float | None
    """Part of the mean step in which the training thread was ready while others had the cores; None
    if the records lack it."""
    phases_s: Mapping[str, float]
    """Mean seconds per step by step phase; adds up to `step_mean_s`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """Rank with the most work, and the rank that waits longest for its data.

    The steps of all ranks take the same time, because they wait for each other:
    they differ in their own work, the step without those waits. Each
    is compared with the mean of its own attempt; the numbers are over the steps
    of all attempts that have the records of all their ranks.
    """

    rank: int
    node: str
    """Nodes where it was slow, joined by commas and `and`."""
    slowest_over_mean: float | None
    """Own work of the slowest rank where it was slow, and of the mean rank elsewhere, over that of
    the mean rank throughout. A lower bound, because waits inside forward and backward are not timed
    separately; None if no waits are."""
    phase: str
    """Step phase in which `rank` exceeds the mean rank most."""
    phase_excess_s: float
    """Excess in that phase, seconds per step."""
    data_rank: int
    data_node: str
    data_excess_s: float
    """Excess of `data_rank`'s wait for data over the mean rank, seconds per step."""
    step_mean_s: float
    """Mean step that contains these."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FarRank:
    """Rank without a core near its GPU."""

    rank: int
    node: str
    cores: str
    """Cores that it may use, in Slurm's form: `0-15`."""
    near_cores: str
    """Cores of its GPU's NUMA node."""
    others_are_near: bool
    """True if other ranks have cores there."""
