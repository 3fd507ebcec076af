"""Text of the reasons of several attempts that are equal apart from their ranks and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_jobs.base.failure_kinds import FailureKind
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.formats.records.failure_reason import rank_place, with_last_line

_MAX_NODES_NAMED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Reason why one attempt failed."""

    text: str
    attempt: int = 1
    rank: int | None = None
    """Rank that failed first, if the record has it."""
    node: str = ""
    last_line: str | None = None
    """Last line of the failed rank's log, if the record has it."""
    kind: FailureKind | None = None
    """Kind of the failure, if the record has it and the scheduler does not say more."""

    @property
    def without_place(self) -> tuple[str, ...]:
        """Return the text before and after rank and node, which differ between slices."""
        place = None if self.rank is None else rank_place(self.rank, self.node)
        if place is None or place not in self.text:
            return (self.text,)
        before, _, after = self.text.partition(place)
        return before, after


def joined_places(ranks: Iterable[int], nodes: Iterable[str]) -> str:
    """Return the place of one failure or note of several slices: `rank 0,2 on n1, n2`."""
    names = sorted(set(nodes))
    named = ", ".join(names) if len(names) <= _MAX_NODES_NAMED else f"{len(names)} nodes"
    return rank_place(ranges_text(sorted(set(ranks))), named)


def joined_text(reasons: Sequence[Reason]) -> str:
    """Return the text of reasons that differ in attempt, rank and node at most."""
    ranks = [reason.rank for reason in reasons if reason.rank is not None]
    place = joined_places(ranks, [reason.node for reason in reasons])
    text = place.join(reasons[0].without_place)
    attempts = sorted({reason.attempt for reason in reasons})
    if attempts != [1]:
        text = f"attempt{'s' if len(attempts) > 1 else ''} {ranges_text(attempts)}: {text}"
    return with_last_line(text, reasons[0].last_line)
