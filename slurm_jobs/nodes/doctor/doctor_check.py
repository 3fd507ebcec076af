"""Check of `doctor`: what was found, how bad it is, and what to do. PURE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, ParamSpec

P = ParamSpec("P")

LOGIN = "login node"

Standing = Literal["problem", "warning", "unknown", "ok"]
"""A problem fails. A warning costs time or data later. Unknown: facts are missing."""
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


class Judgement(NamedTuple):
    """Result of a check that does not know its name, see `Check`."""

    standing: Standing
    told: str
    remedy: str = ""

    def named(self, name: str, where: str = LOGIN) -> Check:
        """Return the check of this name."""
        return Check(
            name=name, standing=self.standing, told=self.told, remedy=self.remedy, where=where
        )


def judged(
    table: Sequence[tuple[str, Callable[P, Judgement | None]]], *args: P.args, **kwargs: P.kwargs
) -> list[Check]:
    """Return the checks of a table, each a name and a judge; None is one that does not apply."""
    judgements = [(name, judge(*args, **kwargs)) for name, judge in table]
    return [judgement.named(name) for name, judgement in judgements if judgement is not None]
