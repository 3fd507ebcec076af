"""Communication without parallel computation, from a profiler's events.

A collective in parallel with computation costs little; one that the ranks wait for costs its
whole time. Its time includes the wait for the slowest rank, which costs the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfiledWork:
    """Piece of work in the profile."""

    name: str
    start_s: float
    end_s: float
    is_kernel: bool
    """True on the device, False on the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Communication:
    """Communication of one rank, over all recorded steps."""

    busy_s: float
    """Time with at least one running collective."""
    exposed_s: float
    """Time in which additionally nothing was computed, according to the profiler, which slows
    small operators down."""


def find_communication(pieces: Iterable[ProfiledWork], *, has_device: bool) -> Communication:
    """Return a GPU's communication from its kernels, a CPU's from gloo's events and operators.

    With `has_device` the model computes on a GPU, and gloo's and operators' events on the host are
    ignored.
    """
    collectives, work = [], []
    for piece in pieces:
        if piece.is_kernel != has_device:
            continue
        if piece.name.startswith(("gloo:", "nccl")):
            collectives.append((piece.start_s, piece.end_s))
        elif has_device or piece.name.startswith("aten::"):
            work.append((piece.start_s, piece.end_s))
    busy_s = _covered_s(collectives)
    exposed_s = _covered_s(collectives + work) - _covered_s(work)
    return Communication(busy_s=busy_s, exposed_s=min(exposed_s, busy_s))  # except for rounding


def _covered_s(intervals: list[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    if not intervals:
        return 0.0
    starts, ends = np.array(sorted(intervals), dtype=np.float64).T
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ends)[:-1]])
    return float(np.maximum(0.0, ends - np.maximum(starts, before)).sum())
