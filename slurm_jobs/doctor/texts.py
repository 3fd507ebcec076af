"""Checks in words, for a terminal: PURE."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from slurm_jobs.doctor.model import WORST_FIRST, Check, Standing

_HEADS: dict[Standing, str] = {
    "problem": "PROBLEM",
    "warning": "warning",
    "unknown": "not known",
    "ok": "ok",
}
_COUNTED: dict[Standing, tuple[str, str]] = {
    "problem": ("problem", "problems"),
    "warning": ("warning", "warnings"),
    "unknown": ("could not be told", "could not be told"),
    "ok": ("ok", "ok"),
}
LOGIN = "login node"


def sorted_checks(checks: Sequence[Check]) -> list[Check]:
    """Worst first; of equals, in the order in which they were looked at."""
    return sorted(checks, key=lambda check: WORST_FIRST.index(check.standing))


def check_lines(check: Check, width: int) -> list[str]:
    """`PROBLEM  torch (v1, v2): ...`, and below it what to do."""
    where = "" if check.where == LOGIN else f" ({check.where})"
    first = f"{_HEADS[check.standing]:<10}{check.name}{where}: {check.told}"
    lines = _wrapped(first, width, indent=12)
    if check.remedy:
        lines += _wrapped(f"          > {check.remedy}", width, indent=12)
    return lines


def ok_lines(checks: Sequence[Check], width: int) -> list[str]:
    """A line or two a check, without spaces between them."""
    lines = []
    for check in checks:
        where = "" if check.where == LOGIN else f" ({check.where})"
        lines += _wrapped(f"ok        {check.name}{where}: {check.told}", width, indent=12)
    return lines


def _wrapped(text: str, width: int, *, indent: int) -> list[str]:
    """Commands and paths are not broken: they are copied."""
    return textwrap.wrap(
        text,
        width=width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def summary(checks: Sequence[Check]) -> str:
    """`1 problem, 2 warnings, 1 could not be told, 20 ok`."""
    counts = Counter(check.standing for check in checks)
    parts = [
        f"{counts[standing]} {_COUNTED[standing][counts[standing] != 1]}"
        for standing in WORST_FIRST
        if counts[standing] or standing == "problem"
    ]
    return ", ".join(parts).replace("0 problems", "no problems")
