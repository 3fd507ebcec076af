"""Checks of JSON values from records, which may be damaged or forged."""

from __future__ import annotations

from typing import Any

from slurm_jobs.base.texts.truncation import MAX_LINE_CHARS

END_OF_TIME_S = 1e11
"""Year 5138. A larger time or duration was not written by us, so the record is damaged."""
MOST = 2**53
"""Largest integer that all JSON readers represent exactly."""
CLOCKS_APART_S = 86_400.0
"""Upper limit for differences between the clocks of a cluster; covers a wrong time zone."""


def is_number(value: Any) -> bool:
    """Check for a finite number in the range of all our counts and measures."""
    is_it = isinstance(value, int | float) and not isinstance(value, bool)
    return is_it and -MOST <= value <= MOST


def is_amount(value: Any) -> bool:
    """Check for a number that is not below zero."""
    return is_number(value) and value >= 0


def is_count(value: Any) -> bool:
    """Check for a whole number that is not below zero."""
    return is_amount(value) and isinstance(value, int)


def is_moment(value: Any) -> bool:
    """Check for seconds since 1970, or a duration in seconds."""
    return is_amount(value) and value < END_OF_TIME_S


def is_text(value: Any) -> bool:
    """Check for text without control characters except lines and tabs, because it is printed."""
    return isinstance(value, str) and all(c.isprintable() or c in "\n\t" for c in value)


def is_line(value: Any) -> bool:
    """Check for text without control characters that is no longer than a message of ours."""
    return isinstance(value, str) and len(value) <= MAX_LINE_CHARS and value.isprintable()
