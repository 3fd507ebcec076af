"""Result of comparing packed samples with the same samples alone, at the start of an attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PACKED_CHECK_SPAN = "packed_check"
"""Span of the comparison, in the first step of a phase; its notes are the fields of the result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedCheck:
    """Result of the comparison over all ranks; each rank with packed rows compares one sample."""

    num_samples: int
    difference: float
    """Largest mean relative difference of a sample's logits, packed and alone."""
    limit: float
    """Difference that rounding may explain."""
    is_exact: bool
    """True if no bit of any logit changed with other neighbours. Experts and kernels that do not
    repeat their results allow no such comparison."""


def read_packed_check(spans: Iterable[Mapping[str, Any]]) -> PackedCheck | None:
    """Return the last result among the spans of a rank; None without one."""
    last = None
    for span in spans:
        if span["name"] != PACKED_CHECK_SPAN or "error" in span:
            continue
        numbers = span.get("num_samples"), span.get("difference"), span.get("limit")
        if all(isinstance(number, (int, float)) for number in numbers):
            last = span
    if last is None:
        return None
    return PackedCheck(
        num_samples=int(last["num_samples"]),
        difference=float(last["difference"]),
        limit=float(last["limit"]),
        is_exact=last.get("is_exact") is True,
    )
