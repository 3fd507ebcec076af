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
_COPIED = ("slurm-jobs ", "sinfo ", "srun ", "du ", "/", "stages.", "setup: ")
"""How remedies begin that are one line to be copied, which is not broken in two."""
_HEAD = 11
"""Columns before the name of a check."""
_ALWAYS = frozenset({"drill"})
"""Who asks for it waits for what it says."""


def sorted_checks(checks: Sequence[Check]) -> list[Check]:
    """Worst first; of equals, in the order in which they were looked at."""
    return sorted(checks, key=lambda check: WORST_FIRST.index(check.standing))


def check_lines(check: Check, width: int) -> list[str]:
    """`PROBLEM  torch (v1, v2): ...`, and below it what to do."""
    where = "" if check.where == LOGIN else f" ({check.where})"
    first = f"{_HEADS[check.standing]:<{_HEAD}}{check.name}{where}: {check.told}"
    lines = _wrapped(first, width)
    if check.remedy:
        remedy = f"{' ' * (_HEAD - 2)}> {check.remedy}"
        lines += [remedy] if check.remedy.startswith(_COPIED) else _wrapped(remedy, width)
    return lines


def lines_of(checks: Sequence[Check], width: int, *, in_words: bool = False) -> list[str]:
    """Worst first, each with what to do; what is well by its names; how many of each.

    `in_words`: say what was found of what is well, too.
    """
    listed = sorted_checks(checks)
    told = [c for c in listed if in_words or c.standing != "ok" or c.name in _ALWAYS]
    lines = [line for check in told for line in check_lines(check, width)]
    named = dict.fromkeys(check.name for check in listed if check not in told)
    if named:
        lines += _wrapped(f"{_HEADS['ok']:<{_HEAD}}{', '.join(named)}", width)
    return [*lines, "", summary(listed)]


def _wrapped(text: str, width: int) -> list[str]:
    """Commands and paths are not broken: they are copied."""
    return textwrap.wrap(
        text,
        width=width,
        subsequent_indent=" " * _HEAD,
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
