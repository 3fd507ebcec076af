"""Versions and bounds, in the form of our own metadata.

`>=2.11,<2.15` and similar; the login node may lack `packaging`. Other forms of PEP 440 (`~=`,
`!=`, epochs) do not occur in our bounds, and give None. PURE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_jobs.base.python_packages import normalized

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?\s*(?:;(.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_CLAUSE = re.compile(r"(>=|<=|>|<|==)\s*(\d+(?:\.\d+)*)")
_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)")

Fault = Literal["missing", "outside", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """Package with a wrong version."""

    name: str
    fault: Fault
    found: str
    """Installed version; empty if it is missing."""
    bounds: str

    def __str__(self) -> str:
        if self.fault == "missing":
            return f"{self.name} is missing ({self.bounds})"
        if self.fault == "unknown":
            return f"{self.name} {self.found} cannot be compared with {self.bounds}"
        return f"{self.name} {self.found} is outside {self.bounds}"

    @property
    def requirement(self) -> str:
        """Requirement for pip, quoted for a shell."""
        return f"'{self.name}{self.bounds}'"


def bounds_of(requires: Sequence[str], extra: str = "") -> dict[str, str]:
    """Return bounds by package: of the base install, or of one extra without it."""
    by_name = {}
    for text in requires:
        match = _REQUIREMENT.fullmatch(text)
        if match is None:
            continue
        named = _EXTRA.search(match[3] or "")
        if (named[1] if named else "") == extra:
            bounds = match[2]
            clauses = [clause.strip() for clause in bounds.split(",") if clause.strip()]
            by_name[normalized(match[1])] = ",".join(
                sorted(clauses, key=lambda clause: clause[0], reverse=True)
            )
    return by_name


def meets(version: str, bounds: str) -> bool | None:
    """Check whether a version is within bounds; None if that is unknown.

    Suffixes of the numbers (`+cu126`, `rc1`) do not count.
    """
    parts = _RELEASE.match(version)
    clauses = [clause for clause in bounds.split(",") if clause]
    matches = [_CLAUSE.fullmatch(clause) for clause in clauses]
    if parts is None or not all(matches):
        return None
    return all(
        _holds(_numbers(parts[1]), match[1], _numbers(match[2])) for match in matches if match
    )


def _holds(version: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> bool:
    length = max(len(version), len(bound))
    left = version + (0,) * (length - len(version))
    right = bound + (0,) * (length - len(bound))
    return {
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
        "==": left == right,
    }[sign]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def mismatches(packages: Mapping[str, str], bounds: Mapping[str, str]) -> list[Mismatch]:
    """Return packages that are missing, or outside their bounds."""
    lines = []
    for name, wanted in bounds.items():
        version = packages.get(name)
        fault: Fault | None = None
        if version is None:
            fault = "missing"
        elif (met := meets(version, wanted)) is not True:
            fault = "unknown" if met is None else "outside"
        if fault is not None:
            lines.append(Mismatch(name=name, fault=fault, found=version or "", bounds=wanted))
    return lines
