"""Result of a measurement of a node, and repetitions within a time budget."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

MIN_REPEATS = 3
"""A median of fewer is unreliable; short repetitions are run even if the time is up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Result of one measurement on this node."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    """By the names of `slurm_jobs.formats.node_records.probe_measures.MEASURES`."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Reasons why something could not be measured, by group."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Details of the method, by group; plain JSON values."""


def not_measured(group: str, reason: str, details: Any = None) -> Measurement:
    """Return an empty result with the reason."""
    return Measurement(reasons={group: reason}, details={group: details} if details else {})


def merged(first: Measurement, second: Measurement) -> Measurement:
    """Merge both; for equal names the second's."""
    return Measurement(
        numbers={**first.numbers, **second.numbers},
        reasons={**first.reasons, **second.reasons},
        details={**first.details, **second.details},
    )


@dataclass(frozen=True, slots=True)
class Deadline:
    """Time of the monotonic clock, seconds."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline in `seconds` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; negative after it."""
        return self.at_s - time.monotonic()


def repeated(
    action: Callable[[], T], deadline: Deadline, *, most: int, least: int = MIN_REPEATS
) -> list[T]:
    """Call `action` repeatedly until the deadline, `least` to `most` times.

    The first call always counts. Further calls begin only if they would end by about the
    deadline, going by the longest call so far, so a slow device gets one call instead of three.
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
    """Return the median."""
    return float(statistics.median(values))
