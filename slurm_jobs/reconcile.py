"""Reconciliation: (stages, ledger, records, scheduler's answer) -> status with source. PURE.

Only a completion record proves that work is done. The scheduler's word explains a failure; it never
proves a success. Unknown is never success, and never failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_jobs.causes import (
    NOT_NEEDED,
    AwaitedJobs,
    is_stuck_itself,
    stage_cause,
    with_causes,
)
from slurm_jobs.run.intents import Intent, latest_intents
from slurm_jobs.run.model import RunRecords, StageSummary
from slurm_jobs.run.outdated import Ages, ages_of, outdated_slices
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.slice_status import (
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

OUTDATED = "older than what it comes after; `resume` runs it again"
DECIDING_FIRST: tuple[Status, ...] = (
    "running",
    "waiting",
    "failed",
    "unknown",
    "cancelled",
    "stranded",
)
"""Precedence: a run has the first of these statuses that one of its stages has."""


ASKED_SOURCES = frozenset({"squeue", "sacct", "local"})
"""Sources whose answer has an age; the others are files of the run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStatus:
    """Status of one stage."""

    stage: StageSummary
    status: Status
    slices: tuple[SliceStatus, ...]
    reason: str = ""
    is_stuck: bool = False
    """True if the queue holds jobs that no wait will start (held, over a limit, or of earlier
    versions). Jobs `afterany` of them do not start either."""

    @property
    def counts(self) -> Mapping[Status, int]:
        """Number of slices by status."""
        return Counter(s.status for s in self.slices)

    @property
    def is_not_needed(self) -> bool:
        """True if it can never start because the event that it handles did not happen."""
        return self.reason.startswith(NOT_NEEDED)

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of the slices that have the stage's status."""
        found = {s.source for s in self.slices if s.status == self.status}
        return tuple(sorted(found or {s.source for s in self.slices}))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """Status of a run."""

    status: Status
    stages: tuple[StageStatus, ...]
    problems: tuple[str, ...] = ()
    """Sources that could not be queried."""
    notes: tuple[str, ...] = ()
    """Information that this cluster can never give."""
    asked_unix_s: float | None = None
    """Time of the scheduler query; None if nothing had to be queried."""
    knows_the_living: bool = True
    """True if every job that is not reported alive has certainly ended."""

    def stage(self, name: str) -> StageStatus:
        """Return the stage of that name.

        Raises:
            KeyError: there is none.
        """
        for stage in self.stages:
            if stage.stage.name == name:
                return stage
        raise KeyError(name)

    def asked_for(self, sources: Iterable[str]) -> float | None:
        """Return the time of the oldest query of these sources; None for files of the run."""
        return self.asked_unix_s if ASKED_SOURCES.intersection(sources) else None


def reconcile(run: RunRecords, answer: Answer) -> RunStatus:
    """Return the status of every slice, of each stage and of the run."""
    stages: dict[str, StageStatus] = {}
    ages: dict[str, Ages] = {}
    numbers: dict[str, Mapping[int, int]] = {}
    for summary in run.stages:
        name, after = summary.name, summary.after
        newest, records = latest_intents(run.intents, name), run.records[name]
        outdated = outdated_slices(after, newest, ages)
        slices = tuple(
            slice_status(
                i,
                newest.get(i),
                records,
                answer,
                is_submitting=run.is_submitting,
                several_partitions="," in summary.partition,
            )
            for i in range(summary.num_slices)
        )
        slices = tuple(
            _to_run_again(s, is_submitting=run.is_submitting) if s.slice_index in outdated else s
            for s in slices
        )
        numbers[name] = {index: own.number for index, own in newest.items()}
        jobs = AwaitedJobs(numbers=numbers, earlier=_earlier_numbers(run.intents, name, newest))
        silent = not answer.knows_the_living
        stages[name] = _stage_status(summary, slices, stages, jobs, is_silent=silent)
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


def _earlier_numbers(
    intents: Iterable[Intent], stage: str, newest: Mapping[int, Intent]
) -> dict[int, int]:
    """Return the number of the intent before the newest, by slice of a stage."""
    older = (i for i in intents if i.stage == stage)
    return {n: i.number for i in older for n in i.slices if newest[n] is not i}


def _to_run_again(part: SliceStatus, *, is_submitting: bool) -> SliceStatus:
    """Treat a slice that is complete but older than its parents as never submitted."""
    if part.status != "completed":
        return part
    status: Status = "waiting" if is_submitting else "stranded"
    reason = f"{NOT_SUBMITTED} yet" if is_submitting else OUTDATED
    return SliceStatus(slice_index=part.slice_index, status=status, source="ledger", reason=reason)


def _stage_status(
    summary: StageSummary,
    slices: tuple[SliceStatus, ...],
    parents: Mapping[str, StageStatus],
    jobs: AwaitedJobs,
    *,
    is_silent: bool,
) -> StageStatus:
    cause = stage_cause(summary.after, parents)
    above = [parents[parent] for parent, kind in summary.after.items() if kind == "afterok"]
    is_stuck = any(s.status == "stranded" and s.wait for s in slices) or (
        any(parent.is_stuck for parent in above) and any(s.status == "waiting" for s in slices)
    )
    slices = with_causes(slices, summary.after, parents, cause, jobs, is_silent=is_silent)
    counts = Counter(s.status for s in slices)
    order: tuple[Status, ...] = ("running", "failed", "unknown", "cancelled", "stranded", "waiting")
    status: Status = next((word for word in order if counts[word]), "completed")
    if is_silent and counts["unknown"]:
        status = "unknown"  # work that may still run is not over because something else failed
    elif counts["waiting"] and status not in {"running", "waiting"}:
        # Some will start, regardless of the others.
        has_begun = status != "stranded" and (counts["completed"] or counts["failed"])
        status = "running" if has_begun else "waiting"
    why = cause or next((s.reason for s in slices if s.status == "stranded"), "")
    is_told = cause or "aftercorr" in summary.after.values() or is_stuck_itself(slices)
    reason = why if status == "stranded" and is_told else ""
    return StageStatus(
        stage=summary, status=status, slices=slices, reason=reason, is_stuck=is_stuck
    )


def _run_status(stages: tuple[StageStatus, ...], *, is_silent: bool) -> Status:
    """Return "running" or "waiting" while anything runs or can start, otherwise the worst status.

    Where no source reports which jobs are alive, unknown ones may still be running.
    """
    words = {s.status for s in stages if not s.is_not_needed}
    if is_silent and "unknown" in words:
        return "unknown"
    return next((word for word in DECIDING_FIRST if word in words), "completed")
