"""Remedies for a list that was given as one value, a range or numbered items. PURE."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from slurm_jobs.base.written_values import parse_number
from slurm_jobs.spec.yaml.flow_style import flow_text
from slurm_jobs.spec.yaml.reader import read_yaml

_RANGE = re.compile(r"([0-9]{1,9}) ?(?:-|:|\.\.|to) ?([0-9]{1,9})")
_WORDS = re.compile(r"[^\s,]+(?: ?, ?[^\s,]+)+")
_MOST_CHARACTERS = 200
_MOST_NUMBERS = 10_000
_MOST_SHOWN = 8

Refusal = Callable[[Any], str | None]
"""Returns why a list is invalid: empty if its kind is wrong, else a remedy; None if it is valid."""


def list_remedy(name: str, value: Any, refusal: Refusal) -> str:
    """Return `; ` and the remedy for a `value` of `name` that is not a list, or an empty text.

    Only a valid list is proposed.
    """
    if isinstance(value, dict):
        is_numbered = value and all(str(step).isdigit() for step in value)
        return f"; the first item has the number 0: {name}.0" if is_numbered else ""
    if isinstance(value, str) and value.lstrip().startswith("["):
        inner = read_yaml(value, "").value if len(value) <= _MOST_CHARACTERS else None
        is_meant = isinstance(inner, list) and refusal(inner) is None
        return "; remove the quotes" if is_meant else ""
    first = ""
    for items in _candidates(value):
        reason = refusal(items)
        if reason is None and len(items) > _MOST_SHOWN and isinstance(items[0], int):
            return f"; write each of them: [{items[0]}, {items[1]}, ..., {items[-1]}]"
        if reason is None:
            return f"; write {flow_text(items)}"
        first = first or reason
    return f"; {first}" if first else ""


def _candidates(value: Any) -> Iterator[list[Any]]:
    """Yield lists that may be meant, the likeliest first: of a range each number, then its ends."""
    if not isinstance(value, str):
        yield from () if value is None else ([value],)
        return
    text = value.strip()
    if not text or len(text) > _MOST_CHARACTERS or "\n" in text or text.startswith("{"):
        return
    bounds = _RANGE.fullmatch(text)
    if bounds is not None:
        first, last = int(bounds[1]), int(bounds[2])
        if 0 <= last - first < _MOST_NUMBERS:
            yield list(range(first, last + 1))
        yield [first, last]
    numbers = [parse_number(part) for part in re.split("[ ,;]+", text)]
    if all(each is not None and math.isfinite(each) for each in numbers):
        yield numbers
    if _WORDS.fullmatch(text):
        yield re.split(" ?, ?", text)
    yield [value]
