"""Quantities, which are a number or the reason why there is none; parts of a time budget. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """Number with its unit, or the reason why there is none."""

    value: float | None
    unit: str
    missing: str = ""
    """Reason for a missing value; empty if there is one."""
    at_least: str = ""
    """Reason why the value is a lower bound; empty if it is exact."""


def known(value: float, unit: str, at_least: str = "") -> Quantity:
    """Return a measured quantity; a lower bound if `at_least` gives a reason."""
    return Quantity(value=float(value), unit=unit, at_least=at_least)


def missing(unit: str, reason: str) -> Quantity:
    """Return a quantity without a value."""
    return Quantity(value=None, unit=unit, missing=reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeShare:
    """Part of a time budget; the parts of a budget add up to 100 %."""

    name: str
    kind: str
    """Kind that sets its colour: a step phase, `queue`, `running`, `unexplained` ..."""
    seconds: float
    share: float
    """Fraction of the whole budget, 0 to 1."""


SHOWN_SHARE = 0.0005
"""Smaller parts of a budget, which would read `<0.1 %`, are only in `report.json`."""


def shown(shares: Iterable[TimeShare]) -> list[TimeShare]:
    """Return the parts of a budget that every renderer shows."""
    return [share for share in shares if abs(share.share) >= SHOWN_SHARE]
