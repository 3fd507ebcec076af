"""Time of computation, communication, copies and idleness, from intervals.

On a GPU all of it is from the device's timeline. On a CPU operators and collectives share the
cores, so that `idle` is the time of Python, of the loader, and of real idleness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_jobs.report.profiles.profile_trace import Pieces, Trace

SHORT_KERNEL_S = 10e-6
"""Approximate time of a launch: shorter kernels cannot hide it. Own choice."""
SMALL_COPY_S = 20e-6
"""Time of copying some kilobytes. Own choice."""
_PAGEABLE = "Pageable"
"""Part of the name that Kineto gives a copy from or to memory that is not pinned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupancy:
    """Sums over the recorded steps, in seconds unless stated otherwise."""

    num_steps: int
    wall_s: float
    """From the start of the first recorded step to the end of the last."""
    compute_s: float
    """At least one piece of computation was under way."""
    communication_s: float
    """At least one collective was under way."""
    overlap_s: float
    """Both were under way."""
    copies_s: float
    """A copy was under way."""
    idle_s: float
    """None of these was under way."""
    num_gaps: int
    """Number of intervals in `idle_s`."""
    longest_gap_s: float
    num_pieces: int
    """Number of kernels, or of operators on a CPU."""
    num_short: int
    """Number of pieces shorter than `SHORT_KERNEL_S`."""
    num_copies: int
    num_small_copies: int
    pageable_s: float
    """Part of the copies from or to memory that is not pinned."""

    @property
    def exposed_s(self) -> float:
        """Time of communication without concurrent computation."""
        return self.communication_s - self.overlap_s


def occupancy(trace: Trace, steps: Sequence[tuple[int, float, float]] = ()) -> Occupancy:
    """Return the occupancy of all recorded steps, or of some of them.

    Raises:
        ValueError: no step was recorded.
    """
    chosen = steps or trace.steps
    if not chosen:
        message = "no step is marked in the trace: it was not written by `profile.steps`"
        raise ValueError(message)
    begin, end = min(s[1] for s in chosen), max(s[2] for s in chosen)
    compute, communication = (_merged(p, begin, end) for p in (trace.compute, trace.communication))
    copies = _merged(trace.copies, begin, end)
    busy = _disjoint(np.concatenate([compute, communication, copies]))
    both = _disjoint(np.concatenate([compute, communication]))
    gaps = np.diff(np.concatenate([[begin], busy.ravel(), [end]]))[::2]
    gaps = gaps[gaps > 0]
    kernels, moved = _within(trace.compute, begin, end), _within(trace.copies, begin, end)
    return Occupancy(
        num_steps=len(chosen),
        wall_s=end - begin,
        compute_s=_length(compute),
        communication_s=_length(communication),
        overlap_s=_length(compute) + _length(communication) - _length(both),
        copies_s=_length(copies),
        idle_s=float(gaps.sum()),
        num_gaps=len(gaps),
        longest_gap_s=float(gaps.max(initial=0.0)),
        num_pieces=len(kernels),
        num_short=int((kernels[:, 1] - kernels[:, 0] < SHORT_KERNEL_S).sum()),
        num_copies=len(moved),
        num_small_copies=int((moved[:, 1] - moved[:, 0] < SMALL_COPY_S).sum()),
        pageable_s=_length(_merged(_named(trace.copies, _PAGEABLE), begin, end)),
    )


def _named(pieces: Pieces, word: str) -> Pieces:
    chosen = np.array([word in name for name in pieces.names], bool)
    return Pieces(
        starts_s=pieces.starts_s[chosen],
        ends_s=pieces.ends_s[chosen],
        names=tuple(name for name in pieces.names if word in name),
    )


def _within(pieces: Pieces, begin: float, end: float) -> np.ndarray:
    """Return the pieces that begin in the interval, [num, 2]."""
    chosen = (pieces.starts_s >= begin) & (pieces.starts_s < end)
    return np.stack([pieces.starts_s[chosen], pieces.ends_s[chosen]], axis=1)


def _merged(pieces: Pieces, begin: float, end: float) -> np.ndarray:
    """Return disjoint intervals that cover the same time, within the bounds: [num, 2]."""
    starts, ends = np.clip(pieces.starts_s, begin, end), np.clip(pieces.ends_s, begin, end)
    return _disjoint(np.stack([starts, ends], axis=1)[ends > starts])


def _disjoint(intervals: np.ndarray) -> np.ndarray:
    if not len(intervals):
        return np.empty((0, 2))
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ordered[:, 1])
    is_first = np.concatenate([[True], ordered[1:, 0] > reached[:-1]])
    lasts = np.concatenate([np.flatnonzero(is_first)[1:] - 1, [len(ordered) - 1]])
    return np.stack([ordered[is_first, 0], reached[lasts]], axis=1)


def _length(intervals: np.ndarray) -> float:
    return float((intervals[:, 1] - intervals[:, 0]).sum())
