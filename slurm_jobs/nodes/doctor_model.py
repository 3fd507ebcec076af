"""Values, texts and supported versions of `doctor`. PURE."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from slurm_jobs.shared.machine import normalized
from slurm_jobs.shared.node_records import FolderFacts

# Facts and checks of a site as plain values.


NODE_STAGE, DRILL_STAGE = "doctor", "drill"

LOGIN = "login node"

Standing = Literal["problem", "warning", "unknown", "ok"]
WORST_FIRST: tuple[Standing, ...] = ("problem", "warning", "unknown", "ok")


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """Result of one check, and what to do."""

    name: str
    """Short name for programs and people: `requeue`."""
    standing: Standing
    told: str
    """Finding in a sentence; for unknown facts, the reason."""
    remedy: str = ""
    """Command to type, line to write, or other advice; empty if nothing need be done."""
    where: str = LOGIN
    """Machines that were checked."""

    @classmethod
    def ok(cls, name: str, text: str, remedy: str = "", where: str = LOGIN) -> Check:
        """Return a passed check."""
        return cls(name=name, standing="ok", told=text, remedy=remedy, where=where)

    @classmethod
    def unknown(cls, name: str, text: str, remedy: str = "", where: str = LOGIN) -> Check:
        """Return a check whose facts are missing."""
        return cls(name=name, standing="unknown", told=text, remedy=remedy, where=where)

    @classmethod
    def warning(cls, name: str, text: str, remedy: str = "", where: str = LOGIN) -> Check:
        """Return a check of something that costs time or data later."""
        return cls(name=name, standing="warning", told=text, remedy=remedy, where=where)

    @classmethod
    def problem(cls, name: str, text: str, remedy: str = "", where: str = LOGIN) -> Check:
        """Return a check that fails."""
        return cls(name=name, standing="problem", told=text, remedy=remedy, where=where)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecFacts:
    """Facts of a spec that the checks depend on."""

    stage: str
    """Name of the stage whose nodes are checked."""
    is_slurm: bool
    trains: bool
    """True if a stage has `run: train`."""
    gpus_per_node: int
    partitions: tuple[str, ...]
    """Partitions that its stages name; empty for the default one."""
    lead_s: int
    """Seconds before the time limit at which the stage gets the signal to stop."""
    checkpoint_min: float | None
    """Minutes between checkpoints of the training; None without that trigger, or training."""
    may_requeue: bool
    num_slices: int
    """Size of its longest array."""
    pythons: tuple[str, ...]
    """Python interpreters that its stages name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """Answer of a program."""

    text: str = ""
    problem: str = ""
    """Reason for a missing answer; empty if there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmFacts:
    """Answers of Slurm's commands on the login node."""

    missing: tuple[str, ...]
    """Commands that are not in PATH."""
    answers: Mapping[str, Asked]
    """By `version`, `config`, `partitions`, `nodes`, `queue`, `accounts`, `association`."""
    asked_unix_s: tuple[float, float]
    """Time of the query of the settings, and of its answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredFolder:
    """Results of a test of a folder on the login node."""

    purpose: str
    """`runs_dir`, `home`."""
    folder: FolderFacts
    free_files: int | None = None
    links: bool | None = None
    """True if hard links work and are refused where the name exists."""
    link_problem: str = ""
    write_s: float | None = None
    """Median time to write a small file durably."""
    quota: Asked = field(default_factory=Asked)
    late: str = ""
    """Reason for missing results: the file system did not answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPython:
    """Python of the login node."""

    version: str
    executable: str
    packages: Mapping[str, str]
    requires: tuple[str, ...] | None
    """Requirements of our distribution from its metadata; None if it is not installed."""
    requires_python: str = ""
    open_s: float | None = None
    """Mean time to open and read a module's file."""
    num_opened: int = 0
    stage_pythons: Mapping[str, bool] = field(default_factory=dict)
    """True for each Python of the spec that can be started here."""


# Checks as text for a terminal.


_HEADS: dict[Standing, str] = {
    "problem": "PROBLEM",
    "warning": "warning",
    "unknown": "not known",
    "ok": "ok",
}
_COUNTED: dict[Standing, tuple[str, str]] = {
    "problem": ("problem", "problems"),
    "warning": ("warning", "warnings"),
    "unknown": ("unknown", "unknown"),
    "ok": ("ok", "ok"),
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
    parts = [
        f"{counts[standing]} {_COUNTED[standing][counts[standing] != 1]}"
        for standing in WORST_FIRST
        if counts[standing] or standing == "problem"
    ]
    return ", ".join(parts).replace("0 problems", "no problems")


# Versions and bounds, in the form of our own metadata.
#
# `>=2.11,<2.15` and similar; the login node may lack `packaging`. Other forms of PEP 440 (`~=`,
# `!=`, epochs) do not occur in our bounds, and give None.


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
