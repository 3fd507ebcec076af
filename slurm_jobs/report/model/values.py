"""A number with its unit, and a part of a time budget, of which a report is made. PURE.

A number that could not be had is a `Quantity` with the reason; never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """A number with its unit, or the reason why there is none."""

    value: float | None
    unit: str
    missing: str = ""
    """Why there is no value; empty if there is one."""
    at_least: str = ""
    """Why the value is a lower bound; empty if it is all there is."""


def known(value: float, unit: str, at_least: str = "") -> Quantity:
    """A quantity that was measured; a lower bound, if `at_least` says why."""
    return Quantity(value=float(value), unit=unit, at_least=at_least)


def missing(unit: str, reason: str) -> Quantity:
    """A quantity that could not be had."""
    return Quantity(value=None, unit=unit, missing=reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeShare:
    """One part of a time budget; the parts of a budget add up to 100 %."""

    name: str
    kind: str
    """What colours it: a step phase, `queue`, `running`, `unexplained` ..."""
    seconds: float
    share: float
    """Fraction of the whole budget, 0 to 1."""


SHOWN_SHARE = 0.0005
"""Smaller parts of a budget, which would be written `<0.1 %`, are left to `report.json`."""


def shown(shares: Iterable[TimeShare]) -> list[TimeShare]:
    """The parts of a budget that a reader is shown, the same in every renderer."""
    return [share for share in shares if abs(share.share) >= SHOWN_SHARE]
