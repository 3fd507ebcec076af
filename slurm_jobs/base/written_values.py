"""Values that texts mean in YAML, or the reason why they have none. PURE."""

from __future__ import annotations

import math
import re
from typing import Any

MAX_DIGITS = 30
"""Most digits of a whole number."""

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
NULLS = {"", "~", "null", "Null", "NULL"}
_TRAPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"(?i:yes|no|on|off|y|n)"),
        (
            "is a truth value in YAML 1.1 and text in YAML 1.2; write true or false, a number in "
            "digits, or text in quotes"
        ),
    ),
    (
        re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"),
        "is a number to base 60 in YAML 1.1 (1:30 would be 90); write that number, or quote text",
    ),
    (
        re.compile(r"[-+]?0[0-9_]+"),
        "is an octal number in YAML 1.1 (010 would be 8); write it without the zero, or quote text",
    ),
    (
        re.compile(r"[-+]?0(x[0-9a-fA-F_]+|b[01_]+|o[0-7]+)"),
        "is a number in another base; write it in decimal, or in quotes if text is meant",
    ),
    (
        re.compile(r"[-+]?[0-9][0-9,]*_[0-9_]*(\.[0-9_]*)?"),
        "is a number in YAML 1.1 and text in YAML 1.2; write it without underscores, or quote text",
    ),
    (
        re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"),
        "is a date in YAML 1.1 and text in YAML 1.2; put quotes around it",
    ),
)


def printable(text: str) -> str:
    """Return `text` on one line, with codes for invisible characters and terminal controls."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shortened(text: str) -> str:
    """Return at most 60 characters of `text`."""
    return text if len(text) <= 60 else text[:57] + "..."


def describe(value: Any) -> str:
    """Return a value for a message, with its kind."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f"the text `{shortened(value)}`"
    if isinstance(value, dict):
        keys = ", ".join(shortened(str(key)) for key in list(value)[:5])
        return f"keys and values ({keys})" if keys else "an empty mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    return f"`{value}`"


def trap(text: str) -> str | None:
    """Return why plain text is refused that YAML 1.1 and 1.2 read differently."""
    return next((reason for pattern, reason in _TRAPS if pattern.fullmatch(text)), None)


def parse_number(text: str) -> int | float | None:
    """Return the number that plain text means; a number too large for a float is infinite."""
    if _INT.fullmatch(text):
        return int(text) if len(text) <= MAX_DIGITS else math.inf
    if _FLOAT.fullmatch(text):
        return float(text)
    return math.inf if _INFINITE.fullmatch(text) else None
