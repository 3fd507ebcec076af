"""Check of `doctor`: what was found, how bad it is, and what to do. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
