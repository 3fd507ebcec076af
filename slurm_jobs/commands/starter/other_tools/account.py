"""Account of a translation: what became of each key of another tool's file. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from slurm_jobs.base.texts.control_characters import plain
from slurm_jobs.base.units import number_of

Fate: TypeAlias = Literal[
    "kept", "translated", "default", "without", "unknown", "computed", "empty"
]
FATES: tuple[Fate, ...] = get_args(Fate)
FATE_TEXTS: dict[Fate, str] = {
    "kept": "kept",
    "translated": "translated",
    "default": "default",
    "without": "no counterpart",
    "unknown": "unknown",
    "computed": "not computed",
    "empty": "empty",
}
_MOST_VALUE = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountRow:
    """Key of the file, and what became of it."""

    key: str
    value: str
    fate: Fate
    text: str
    """Key and value in the spec, or the reason why there is none."""


def value_text(value: object) -> str:
    """Return a value on one short line."""
    text = " ".join(plain(str(value)).split())
    return text if len(text) <= _MOST_VALUE else f"{text[: _MOST_VALUE - 3]}..."


def summary(rows: Sequence[AccountRow]) -> str:
    """Return how many keys had which fate: `31 keys: 12 kept, 9 translated`."""
    counts = Counter(row.fate for row in rows)
    num_defaults = counts.pop("default", 0)
    parts = [f"{counts[fate]} {FATE_TEXTS[fate]}" for fate in FATES if counts[fate]]
    defaults = f"; {number_of('default', num_defaults)} of the tool" if num_defaults else ""
    return f"{number_of('key', counts.total())}: {', '.join(parts)}{defaults}"


def table_lines(rows: Sequence[AccountRow]) -> Iterator[str]:
    """Yield the rows as aligned lines, by their fate."""
    names = [f"{row.key}: {row.value}" if row.value else row.key for row in rows]
    width = min(56, max((len(name) for name in names), default=0))
    for fate in FATES:
        for row, name in zip(rows, names, strict=True):
            if row.fate == fate:
                yield f"  {FATE_TEXTS[fate]:<14}  {name:<{width}}  {row.text}"


def markdown(rows: Sequence[AccountRow], *, file: str, tool: str, spec: str) -> str:
    """Return the account as a page."""
    lines = [
        f"# {file} of {tool}, and {spec}",
        "",
        f"{summary(rows)}.",
        "",
        "| key | value | | here |",
        "| --- | --- | --- | --- |",
    ]
    for fate in FATES:
        for row in rows:
            if row.fate == fate:
                cells = (f"`{row.key}`", row.value, FATE_TEXTS[fate], row.text)
                lines.append(
                    f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
                )
    return "\n".join(lines) + "\n"
