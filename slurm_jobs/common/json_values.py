"""Whether a value of JSON is what its writer writes: records may be damaged, or another's. PURE."""

from __future__ import annotations

from typing import Any

END_OF_TIME_S = 1e11
"""In the year 5138. A time or duration of more seconds was not written by us: it is damage."""
MOST = 2**53
"""The largest number that all who read JSON take for the same."""
CLOCKS_APART_S = 86_400.0
"""Clocks of a cluster's machines differ by less; covers a wrong time zone."""


def is_number(value: Any) -> bool:
    """Neither NaN, nor infinite, nor beyond what anything of ours counts or measures."""
    is_it = isinstance(value, int | float) and not isinstance(value, bool)
    return is_it and -MOST <= value <= MOST


def is_amount(value: Any) -> bool:
    """A number that is not below zero."""
    return is_number(value) and value >= 0


def is_count(value: Any) -> bool:
    """A whole number that is not below zero."""
    return is_amount(value) and isinstance(value, int)


def is_moment(value: Any) -> bool:
    """Seconds since 1970, or a duration in seconds."""
    return is_amount(value) and value < END_OF_TIME_S


def is_text(value: Any) -> bool:
    """Text without characters that steer a terminal, lines and tabs aside: it is printed."""
    return isinstance(value, str) and all(c.isprintable() or c in "\n\t" for c in value)
