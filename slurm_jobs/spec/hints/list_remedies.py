"""Remedies for a list that was given as one value, or as a text. PURE."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from slurm_jobs.base.written_values import parse_number
from slurm_jobs.spec.yaml.flow_style import flow_text
from slurm_jobs.spec.yaml.reader import read_yaml

_RANGE = re.compile(r"([0-9]{1,6}) ?- ?([0-9]{1,6})")
_MOST_NUMBERS = 16
"""Of a range that a remedy writes out."""
_WORDS = re.compile(r"[^\s,]+(?: ?, ?[^\s,]+)+")
_MOST_CHARACTERS = 200

Refusal = Callable[[Any], str | None]
"""Returns why a list is invalid: empty if its kind is wrong, else a remedy; None if it is valid."""


def list_remedy(value: Any, refusal: Refusal) -> str:
    """Return `; ` and the remedy for a `value` that is not a list, or an empty text.

    Only a valid list is proposed.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        inner = read_yaml(value, "").value if len(value) <= _MOST_CHARACTERS else None
        is_meant = isinstance(inner, list) and refusal(inner) is None
        return "; remove the quotes" if is_meant else ""
    first = ""
    for items in _candidates(value):
        reason = refusal(items)
        if reason is None:
            return f"; write {flow_text(items)}"
        first = first or reason
    return f"; {first}" if first else ""


def _candidates(value: Any) -> Iterator[list[Any]]:
    """Yield lists that may be meant, the likeliest first."""
    if value is None or isinstance(value, dict):
        return
    if not isinstance(value, str):
        yield [value]
        return
    text = value.strip()
    if not text or len(text) > _MOST_CHARACTERS or "\n" in text or text.startswith("{"):
        return
    bounds = _RANGE.fullmatch(text)
    numbers_between = range(int(bounds[1]), int(bounds[2]) + 1) if bounds else range(0)
    if 0 < len(numbers_between) <= _MOST_NUMBERS:
        yield list(numbers_between)
    parts = re.split(" ?, ?", text)
    numbers = [parse_number(part) for part in parts]
    if all(each is not None and math.isfinite(each) for each in numbers):
        yield numbers
    if _WORDS.fullmatch(text):
        yield parts
    yield [value]
