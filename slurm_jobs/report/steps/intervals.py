"""Sets of time as lists of intervals. PURE.

`budget` assigns every second of a span to the first claim that covers it, so that its parts add
up to the whole by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slurm_jobs.base.quantities import TimeShare

Interval = tuple[float, float]
"""Start and end in seconds, start <= end."""


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the set as sorted disjoint intervals; empty ones are dropped."""
    merged: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def subtract(whole: Sequence[Interval], parts: Sequence[Interval]) -> list[Interval]:
    """Return `whole` without `parts`; both disjoint and sorted, as `merge` returns them."""
    left: list[Interval] = []
    first = 0
    for start, end in whole:
        at = start
        while first < len(parts) and parts[first][1] <= start:
            first += 1
        index = first
        while index < len(parts) and parts[index][0] < end:
            if parts[index][0] > at:
                left.append((at, parts[index][0]))
            at = max(at, parts[index][1])
            index += 1
        if at < end:
            left.append((at, end))
    return left


def total_s(intervals: Iterable[Interval]) -> float:
    """Return the sum of the lengths."""
    return sum(end - start for start, end in intervals)


def max_overlap(intervals: Iterable[Interval]) -> int:
    """Return the largest number of intervals that overlap."""
    edges = sorted(
        edge for start, end in intervals for edge in ((start, 1), (end, -1)) if end > start
    )
    most = running = 0
    for _, change in edges:
        running += change
        most = max(most, running)
    return most


def budget(
    start_s: float,
    end_s: float,
    claims: Sequence[tuple[str, str, Sequence[Interval]]],
    rest: tuple[str, str],
) -> tuple[TimeShare, ...]:
    """Divide the span from `start_s` to `end_s` among `claims`; earlier claims win.

    Args:
        start_s: start of the span, seconds.
        end_s: its end.
        claims: name, kind and intervals of each part.
        rest: name and kind of the unclaimed time.

    Returns:
        The parts that have any time, in the order of the claims, the rest last.
    """
    left = merge([(start_s, end_s)])
    whole_s = total_s(left)
    shares = []
    for name, kind, intervals in claims:
        after = subtract(left, merge(intervals))
        shares.append((name, kind, total_s(left) - total_s(after)))
        left = after
    shares.append((*rest, total_s(left)))
    return tuple(
        TimeShare(name=name, kind=kind, seconds=seconds, share=seconds / whole_s)
        for name, kind, seconds in shares
        if whole_s > 0 and (seconds > 1e-6 * whole_s or (name, kind) == rest)
    )
