"""Remedies for a number with a unit or in quotes, or a clock time. PURE."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

from slurm_jobs.base.written_values import parse_number

_BYTES: dict[str, int] = {
    **dict.fromkeys(("k", "kb", "kib"), 1024),
    **dict.fromkeys(("m", "mb", "mib"), 1024**2),
    **dict.fromkeys(("g", "gb", "gib"), 1024**3),
    **dict.fromkeys(("t", "tb", "tib"), 1024**4),
}
_SECONDS: dict[str, int] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 60**2),
    **dict.fromkeys(("d", "day", "days"), 24 * 60**2),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 24 * 60**2),
}
"""Sizes, as those above, by a unit as people write it."""
_UNITS = {
    "mb": ("megabytes", _BYTES),
    "gb": ("gigabytes", _BYTES),
    "s": ("seconds", _SECONDS),
    "min": ("minutes", _SECONDS),
}
"""By the unit that ends a key's name: its name, and the units that can follow a number."""
_WITH_UNIT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) ?([A-Za-z]+)")


def value_remedy(key: str, kind: str, value: Any) -> str:
    """Return `; ` and the remedy for a `value` of `key` that is not of pydantic's `kind`."""
    if kind == "string_type" and isinstance(value, (int, float)):
        return "; put quotes around it"
    if kind not in {"int_type", "float_type"} or not isinstance(value, str):
        return ""
    if _fits(parse_number(value.strip()), kind):
        return "; remove the quotes"
    if clock := clock_remedy(key, value.strip()):
        return f"; {clock}"
    match = _WITH_UNIT.fullmatch(value.strip())
    converted = _in_unit(key.rpartition("_")[2], match[1], match[2].lower()) if match else None
    if converted is None or not _fits(converted, kind):
        return ""
    return f"; {_counts(key)}: write {_shown(converted)}"


def clock_remedy(key: str, text: str) -> str:
    """Return what to write instead of a time (`12:00:00`), if `key` names its unit."""
    unit, parts = key.rpartition("_")[2], text.split(":")
    if unit not in {"s", "min"} or not all(re.fullmatch("[0-9]{1,6}", part) for part in parts):
        return ""

    def shown(*by_place: int) -> str:
        seconds = sum(int(part) * each for part, each in zip(parts, by_place, strict=True))
        converted = _in_unit(unit, str(seconds), "s")
        assert converted is not None
        return _shown(converted)

    if len(parts) == 3:
        return f"{_counts(key)}: write {shown(3600, 60, 1)}"
    if len(parts) == 2:
        either = f"{shown(3600, 60)} if it is hours:minutes, {shown(60, 1)} if minutes:seconds"
        return f"{_counts(key)}: write {either}"
    return ""


def _counts(key: str) -> str:
    return f"`{key}` counts {_UNITS[key.rpartition('_')[2]][0]}"


def _shown(converted: float) -> str:
    return str(converted) if isinstance(converted, int) else f"{converted:.6g}"


def _in_unit(unit: str, amount: str, given_unit: str) -> int | float | None:
    """Return `amount` of one unit in another, exact if it is whole; None if a unit is unknown."""
    _, table = _UNITS.get(unit, ("", {}))
    if given_unit not in table:
        return None
    converted = Fraction(amount) * table[given_unit] / table[unit]
    return converted.numerator if converted.denominator == 1 else float(converted)


def _fits(value: float | None, kind: str) -> bool:
    is_finite = value is not None and math.isfinite(value)
    return is_finite and (kind == "float_type" or isinstance(value, int))
