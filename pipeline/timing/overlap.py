"""How much of the communication nothing was computed beside, from a profiler's events: PURE.

A collective that runs beside computation costs little; one that the ranks wait for costs its
whole time. Its time has the wait for the slowest rank in it, which comes to the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A piece of work that the profiler saw."""

    name: str
    start_s: float
    end_s: float
    is_kernel: bool
    """On the device; else on the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Communication:
    """Of one rank, over all recorded steps."""

    busy_s: float
    """At least one collective was under way."""
    exposed_s: float
    """And nothing was computed: as the profiler has it, which slows small operators down."""


def find_communication(pieces: Iterable[Piece], *, has_device: bool) -> Communication:
    """On a GPU from its kernels, NCCL's beside all others; on a CPU from gloo's beside operators.

    Args:
        pieces: Everything recorded, in any order.
        has_device: Whether the model computes on a GPU; what gloo and operators do on the host is
            then no part of it.
    """
    collectives, work = [], []
    for piece in pieces:
        if piece.is_kernel != has_device:
            continue
        if _is_collective(piece.name):
            collectives.append((piece.start_s, piece.end_s))
        elif has_device or piece.name.startswith("aten::"):
            work.append((piece.start_s, piece.end_s))
    busy_s = _covered_s(collectives)
    exposed_s = _covered_s(collectives + work) - _covered_s(work)
    return Communication(busy_s=busy_s, exposed_s=min(exposed_s, busy_s))  # but for rounding


def _is_collective(name: str) -> bool:
    return name.startswith(("gloo:", "nccl"))


def _covered_s(intervals: list[tuple[float, float]]) -> float:
    """Length of what at least one of them covers."""
    if not intervals:
        return 0.0
    starts, ends = np.array(sorted(intervals), dtype=np.float64).T
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ends)[:-1]])
    return float(np.maximum(0.0, ends - np.maximum(starts, before)).sum())
