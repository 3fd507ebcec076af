"""Versions of packages, compared with the bounds in our own metadata. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

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
    by_name: dict[str, str] = {}
    for text in requires:
        requirement = Requirement(text)
        marker = requirement.marker
        is_base = marker is None or marker.evaluate({"extra": ""})
        is_of_extra = marker is None or marker.evaluate({"extra": extra})
        if is_of_extra and is_base == (extra == ""):
            clauses = sorted(map(str, requirement.specifier), reverse=True)  # >= before <
            by_name[canonicalize_name(requirement.name)] = ",".join(clauses)
    return by_name


def meets(version: str, bounds: str) -> bool | None:
    """Check whether a version is within bounds; None if that is unknown.

    Suffixes of the numbers (`+cu126`, `rc1`, `a0+nv25.1`) do not count.
    """
    try:
        return SpecifierSet(bounds).contains(Version(version).base_version)
    except (InvalidVersion, InvalidSpecifier):
        return None


def mismatches(packages: Mapping[str, str], bounds: Mapping[str, str]) -> list[Mismatch]:
    """Return packages that are missing, or outside their bounds."""
    wrong = []
    for name, bound in bounds.items():
        version = packages.get(name)
        is_met = False if version is None else meets(version, bound)
        if is_met:
            continue
        fault: Fault = "outside" if is_met is False else "unknown"
        if version is None:
            fault = "missing"
        wrong.append(Mismatch(name=name, fault=fault, found=version or "", bounds=bound))
    return wrong
