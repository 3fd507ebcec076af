"""(stages, ledger, records, what the scheduler says) -> status, each with its source. PURE.

What proves that work is done is its completion record. The scheduler's word
explains a failure; it never proves a success. Unknown is never success, and
never failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slurm_jobs.run.intents import latest_intents
from slurm_jobs.run.model import RunRecords, StageSummary
from slurm_jobs.run.outdated import Ages, ages_of, outdated_slices
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.schedulers.states import LIVING_STATES
from slurm_jobs.slice_status import (
    CANCELLED_ELSEWHERE,
    NEVER,
    NOT_SUBMITTED,
    SliceStatus,
    Status,
    completed_slices,
    slice_status,
)

__all__ = [
    "ASKED_SOURCES",
    "DECIDING_FIRST",
    "NOT_NEEDED",
    "RunStatus",
    "SliceStatus",
    "StageStatus",
    "Status",
    "completed_slices",
    "reconcile",
    "slice_status",
]

NOT_NEEDED = "not needed"
OUTDATED = "older than what it comes after; `resume` runs it again"
DECIDING_FIRST: tuple[Status, ...] = (
    "running",
    "waiting",
    "failed",
    "unknown",
    "cancelled",
    "stranded",
)
"""Which status of its stages a run has: the first of these that one of them has."""


ASKED_SOURCES = frozenset({"squeue", "sacct", "local"})
"""Sources of a status whose word has an age; the others are files of the run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStatus:
    """One stage."""

    stage: StageSummary
    status: Status
    slices: tuple[SliceStatus, ...]
    reason: str = ""
    is_stuck: bool = False
    """Whether the scheduler leaves jobs in the queue that can never start, as it does with those
    of earlier versions, so that what comes `afterany` of them never starts either."""

    @property
    def counts(self) -> Mapping[Status, int]:
        """Number of slices by status."""
        return Counter(s.status for s in self.slices)

    @property
    def is_not_needed(self) -> bool:
        """Whether it can never start because what it is there for did not happen."""
        return self.reason.startswith(NOT_NEEDED)

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the status comes from: the sources of the slices that have it."""
        found = {s.source for s in self.slices if s.status == self.status}
        return tuple(sorted(found or {s.source for s in self.slices}))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """A run."""

    status: Status
    stages: tuple[StageStatus, ...]
    problems: tuple[str, ...] = ()
    """Sources that could not be asked."""
    notes: tuple[str, ...] = ()
    """What this cluster can never say."""
    asked_unix_s: float | None = None
    """When the scheduler was asked; None if there was nothing to ask."""
    knows_the_living: bool = True
    """Whether what is not said to live has certainly ended."""

    def stage(self, name: str) -> StageStatus:
        """The stage of that name.

        Raises:
            KeyError: there is none.
        """
        for stage in self.stages:
            if stage.stage.name == name:
                return stage
        raise KeyError(name)

    def asked_for(self, sources: Iterable[str]) -> float | None:
        """When the oldest of these sources was asked; None where they are files, read just now."""
        return self.asked_unix_s if ASKED_SOURCES.intersection(sources) else None


def reconcile(run: RunRecords, answer: Answer) -> RunStatus:
    """Status of every slice, stage and the run."""
    stages: dict[str, StageStatus] = {}
    ages: dict[str, Ages] = {}
    for summary in run.stages:
        name, after = summary.name, summary.after
        newest, records = latest_intents(run.intents, name), run.records[name]
        outdated = outdated_slices(after, newest, ages)
        slices = tuple(
            slice_status(i, newest.get(i), records, answer, is_submitting=run.is_submitting)
            for i in range(summary.num_slices)
        )
        slices = tuple(
            _to_run_again(s, is_submitting=run.is_submitting) if s.slice_index in outdated else s
            for s in slices
        )
        silent = not answer.knows_the_living
        stages[name] = _stage_status(summary, slices, stages, is_silent=silent)
        own = {} if stages[name].is_not_needed else newest
        ages[name] = ages_of(after, own, ages, summary.num_slices)
    listed = tuple(stages.values())
    return RunStatus(
        status=_run_status(listed, is_silent=not answer.knows_the_living),
        stages=listed,
        problems=answer.problems,
        notes=answer.notes,
        asked_unix_s=answer.asked_unix_s or None,
        knows_the_living=answer.knows_the_living,
    )


def _to_run_again(part: SliceStatus, *, is_submitting: bool) -> SliceStatus:
    """What is complete and older than what it comes after is as good as never submitted."""
    if part.status != "completed":
        return part
    status: Status = "waiting" if is_submitting else "stranded"
    reason = f"{NOT_SUBMITTED} yet" if is_submitting else OUTDATED
    return SliceStatus(slice_index=part.slice_index, status=status, source="ledger", reason=reason)


def _stage_status(
    summary: StageSummary,
    slices: tuple[SliceStatus, ...],
    parents: Mapping[str, StageStatus],
    *,
    is_silent: bool,
) -> StageStatus:
    cause = _never_cause(summary, parents)
    above = [parents[parent] for parent, kind in summary.after.items() if kind == "afterok"]
    is_stuck = any(s.reason == NEVER for s in slices) or (
        any(parent.is_stuck for parent in above) and any(s.status == "waiting" for s in slices)
    )
    slices = tuple(
        _stranded(s, cause or _element_cause(s, summary, parents))
        if not _is_taken_away(s, is_silent=is_silent)
        else _stranded(s, cause or _taken_away_cause(s, summary, parents), is_taken_away=True)
        for s in slices
    )
    counts = Counter(s.status for s in slices)
    order: tuple[Status, ...] = ("running", "failed", "unknown", "cancelled", "stranded", "waiting")
    status: Status = next((word for word in order if counts[word]), "completed")
    if is_silent and counts["unknown"]:
        status = "unknown"  # what may still run is not over because something else has failed
    elif counts["waiting"] and status not in {"running", "waiting"}:
        # Some will start, whatever became of the others.
        has_begun = status != "stranded" and (counts["completed"] or counts["failed"])
        status = "running" if has_begun else "waiting"
    why = cause or next((s.reason for s in slices if s.status == "stranded"), "")
    reason = why if status == "stranded" and (cause or _has_elements_after(summary)) else ""
    return StageStatus(
        stage=summary, status=status, slices=slices, reason=reason, is_stuck=is_stuck
    )


def _is_taken_away(part: SliceStatus, *, is_silent: bool) -> bool:
    """Whether a job may have ended because it could never start (`--kill-on-invalid-dep=yes`).

    Without accounts Slurm forgets it after some minutes.
    """
    is_forgotten = part.status == "unknown" and part.job_id is not None and not is_silent
    return not part.attempt and (part.reason == CANCELLED_ELSEWHERE or is_forgotten)


def _stranded(part: SliceStatus, cause: str | None, *, is_taken_away: bool = False) -> SliceStatus:
    """The same with the cause, if it waits for what never comes."""
    waits = part.status == "stranded" or (part.status == "waiting" and part.job_id is not None)
    if cause is None or not (waits or is_taken_away):
        return part
    return replace(part, status="stranded", reason=cause)


def _taken_away_cause(
    part: SliceStatus, summary: StageSummary, parents: Mapping[str, StageStatus]
) -> str | None:
    """Why Slurm ended the job of a slice that never started.

    Where arrays do not stand side by side, `aftercorr` waits for all of the other stage. And the
    scheduler may have lost a node after the last record was written.
    """
    cause = _element_cause(part, summary, parents)
    if cause is not None:
        return cause
    for parent, kind in summary.after.items():
        if kind not in {"afterok", "aftercorr"}:
            continue
        if any(parents[parent].counts[word] for word in ("failed", "cancelled", "stranded")):
            return f"`{parent}` has slices that failed or were cancelled"
        ended = {s.state for s in parents[parent].slices} - LIVING_STATES - {None, "COMPLETED"}
        if parents[parent].status == "completed" and ended:
            return NEVER
    return None


def _has_elements_after(summary: StageSummary) -> bool:
    return "aftercorr" in summary.after.values()


def _element_cause(
    part: SliceStatus, summary: StageSummary, parents: Mapping[str, StageStatus]
) -> str | None:
    """Why this slice alone can never start: the like of it in another stage (`aftercorr`)."""
    for parent, kind in summary.after.items():
        if kind != "aftercorr":
            continue
        above = parents[parent].slices[part.slice_index]
        if above.status == "stranded":
            return above.reason
        if above.status in {"failed", "cancelled"}:
            return f"`{parent}` slice {above.slice_index} {above.status}"
    return None


def _never_cause(summary: StageSummary, parents: Mapping[str, StageStatus]) -> str | None:
    """Why this stage can never start, named by the stage where it began.

    A parent that can never start is taken away, by which `afterany` and `afternotok` are met,
    unless the scheduler leaves it in the queue.
    """
    for parent, kind in summary.after.items():
        above = parents[parent]
        if kind == "afternotok" and above.status == "completed":
            return f"{NOT_NEEDED}: `{parent}` completed"
        is_met = kind != "afterok" and (above.is_not_needed or not above.is_stuck)
        if kind == "aftercorr" or is_met:
            continue
        if above.status == "stranded":
            return above.reason or f"`{parent}` can never start"
        if kind != "afterok":
            continue
        if above.status in {"failed", "cancelled"}:
            return f"`{parent}` {above.status}"
        if above.counts["failed"] or above.counts["cancelled"]:
            return f"`{parent}` has slices that failed or were cancelled"
    return None


def _run_status(stages: tuple[StageStatus, ...], *, is_silent: bool) -> Status:
    """Going while anything runs, or waits that can start; then the worst that happened.

    Where nobody says what lives, what is unknown may go on.
    """
    words = {s.status for s in stages if not s.is_not_needed}
    if is_silent and "unknown" in words:
        return "unknown"
    return next((word for word in DECIDING_FIRST if word in words), "completed")
