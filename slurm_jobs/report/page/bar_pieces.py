"""Pieces of an attempt's bar, and the kinds that have a colour of their own. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurm_jobs.report.page.markup import Html, el
from slurm_jobs.report.values.stage_model import Bar

KINDS = {
    "completed": "completed",
    "running": "running",
    "stopped": "asked to stop, saved",
    "superseded": "superseded by a later attempt",
    "stranded": "stranded",
    "unknown": "end not known",
    "cancelled": "cancelled",
    "failed": "failed",
    "startup": "job starts up",
    "queued": "waits in the queue",
    "waiting": "waiting",
}
"""Name of each kind in a legend. Stacked areas have the first one at the bottom. `o-KIND` in
page.css has its colour."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BarPiece:
    """Part of the time of an attempt's job."""

    kind: str
    """A key of `KINDS`."""
    start_unix_s: float
    end_unix_s: float


def pieces(bar: Bar) -> Iterator[BarPiece]:
    """Yield the wait in the queue, the start-up of the job, and the attempt."""
    begun = bar.start_unix_s if bar.job_start_unix_s is None else bar.job_start_unix_s
    job_start = min(begun, bar.start_unix_s)  # the node's clock may be behind Slurm's
    eligible = job_start if bar.eligible_unix_s is None else bar.eligible_unix_s
    if eligible < job_start:
        yield BarPiece(kind="queued", start_unix_s=eligible, end_unix_s=job_start)
    if job_start < bar.start_unix_s:
        yield BarPiece(kind="startup", start_unix_s=job_start, end_unix_s=bar.start_unix_s)
    yield BarPiece(kind=bar.outcome, start_unix_s=bar.start_unix_s, end_unix_s=bar.end_unix_s)


def kinds_of(bars: Iterable[Bar]) -> list[str]:
    """Return the kinds of all pieces, in the order of `KINDS`."""
    present = {piece.kind for bar in bars for piece in pieces(bar)}
    return [kind for kind in KINDS if kind in present]


def key(kind: str) -> Html:
    """Return a square in the colour of a kind."""
    return el("span", class_=f"key o-{kind}")
