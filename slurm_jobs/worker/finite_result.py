"""Results of stages whose numbers are all finite, because JSON has no NaN and no infinity.

Finished work must not fail because of one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

_MOST_NAMES = 5
"""Names that a note lists."""
_MOST_NAME_CHARS = 80


def finite_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result with the texts `NaN`, `Infinity` and `-Infinity` for such numbers."""
    values: dict[str, Any] = json.loads(json.dumps(result), parse_constant=str)
    return values


def not_finite_note(result: Mapping[str, Any]) -> str | None:
    """Return a note that names the numbers that are not finite; None if all are finite."""
    names = list(dict.fromkeys(_names_not_finite(result, "")))
    if not names:
        return None
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_NAMES])
    rest = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"no finite number in its result for {shown}{rest}"


def _names_not_finite(value: Any, name: str) -> Iterator[str]:
    """Yield names joined by a dot; the values of a list have the name of the list."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            shown = key[:_MOST_NAME_CHARS]
            yield from _names_not_finite(entry, f"{name}.{shown}" if name else shown)
    elif isinstance(value, list):
        for entry in value:
            yield from _names_not_finite(entry, name)
    elif isinstance(value, float) and not math.isfinite(value):
        yield name
