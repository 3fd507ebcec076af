"""Checks as text for a terminal. PURE."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from slurm_jobs.nodes.doctor.doctor_check import LOGIN, WORST_FIRST, Check, Standing

_HEADS: dict[Standing, str] = {
    "problem": "PROBLEM",
    "warning": "warning",
    "unknown": "not known",
    "ok": "ok",
}
_COPIED = ("slurm-jobs ", "sinfo ", "srun ", "du ", "/", "stages.", "setup: ")
"""Prefixes of remedies that are one line to copy, which must not be wrapped."""
_HEAD = 11
"""Columns before the name of a check."""
_ALWAYS = frozenset({"drill"})
"""Checks that are always printed, because the user requested them with an option."""


def sorted_checks(checks: Sequence[Check]) -> list[Check]:
    """Sort the checks, worst first; equal ones stay in order."""
    return sorted(checks, key=lambda check: WORST_FIRST.index(check.standing))


def check_lines(check: Check, width: int) -> list[str]:
    """Return `PROBLEM  torch (v1, v2): ...`, with the remedy on the next lines."""
    where = "" if check.where == LOGIN else f" ({check.where})"
    first = f"{_HEADS[check.standing]:<{_HEAD}}{check.name}{where}: {check.told}"
    lines = _wrapped(first, width)
    if check.remedy:
        remedy = f"{' ' * (_HEAD - 2)}> {check.remedy}"
        lines += [remedy] if check.remedy.startswith(_COPIED) else _wrapped(remedy, width)
    return lines


def lines_of(checks: Sequence[Check], width: int, *, in_words: bool = False) -> list[str]:
    """Return checks with remedies, worst first, then the names of passed ones, then the counts.

    `in_words`: print the findings of passed checks, too.
    """
    listed = sorted_checks(checks)
    shown = [c for c in listed if in_words or c.standing != "ok" or c.name in _ALWAYS]
    lines = [line for check in shown for line in check_lines(check, width)]
    named = dict.fromkeys(check.name for check in listed if check not in shown)
    if named:
        lines += _wrapped(f"{_HEADS['ok']:<{_HEAD}}{', '.join(named)}", width)
    return [*lines, "", summary(listed)]


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap a text; commands and paths are kept whole, because they are copied."""
    return textwrap.wrap(
        text,
        width=width,
        subsequent_indent=" " * _HEAD,
        break_long_words=False,
        break_on_hyphens=False,
    )


def summary(checks: Sequence[Check]) -> str:
    """Return `1 problem, 2 warnings, 1 unknown, 20 ok`."""
    counts = Counter(check.standing for check in checks)
    parts = [] if counts["problem"] else ["no problems"]
    for standing in WORST_FIRST:
        if counts[standing]:
            is_plural = counts[standing] > 1 and standing in {"problem", "warning"}
            parts.append(f"{counts[standing]} {standing}{'s' if is_plural else ''}")
    return ", ".join(parts)
