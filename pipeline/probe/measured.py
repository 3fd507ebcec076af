"""What measures have in common: their answer, and repeats within a budget of time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

MIN_REPEATS = 3
"""A median of fewer says little; they are made even where the time is up, if one is short."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What one measure found on this node."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    """By the names of `slurm_jobs.common.probe_records.MEASURES`."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why something could not be measured, by group."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """How it was measured, by group; plain JSON values."""


def not_measured(group: str, reason: str, details: Any = None) -> Measured:
    """Nothing, and why."""
    return Measured(reasons={group: reason}, details={group: details} if details else {})


def merged(first: Measured, second: Measured) -> Measured:
    """Both; of equal names the second's."""
    return Measured(
        numbers={**first.numbers, **second.numbers},
        reasons={**first.reasons, **second.reasons},
        details={**first.details, **second.details},
    )


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of the monotonic clock, seconds."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; below 0 after it."""
        return self.at_s - time.monotonic()


def repeated(
    action: Callable[[], T], deadline: Deadline, *, most: int, least: int = MIN_REPEATS
) -> list[T]:
    """What `action` returns, again and again until the deadline, `least` to `most` times.

    The first call counts always. More than that is not begun where it would not end by about the
    deadline, going by the longest call so far, so that a slow device takes one call and not three.
    """
    values: list[T] = []
    longest_s = 0.0
    while len(values) < most:
        wanted = least if longest_s < 1.0 else 1
        if len(values) >= wanted and deadline.left_s < longest_s:
            break
        start_s = time.monotonic()
        values.append(action())
        longest_s = max(longest_s, time.monotonic() - start_s)
    return values


def median(values: list[float]) -> float:
    """The middle one."""
    return float(statistics.median(values))
