"""(stages, ledger, records, what the scheduler says) -> status, each with its source. PURE.

What proves that work is done is its completion record. The scheduler's word
explains a failure; it never proves a success. Unknown is never success, and
never failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from slurm_jobs.common.records import Outcome, TaskAccounting
from slurm_jobs.run.intents import Intent, latest_intents
from slurm_jobs.run.model import RunRecords, StageRecords, StageSummary
from slurm_jobs.schedulers.local_state import NO_RUNNER
from slurm_jobs.schedulers.protocol import Answer

Status = Literal["waiting", "running", "completed", "failed", "cancelled", "stranded", "unknown"]

PENDING_STATES = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
RUNNING_STATES = frozenset(
    {"RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED"}
)
NEVER_REASONS = {
    "DependencyNeverSatisfied": "DependencyNeverSatisfied",
    NO_RUNNER: "the local runner has ended; `resume` starts one",
}
NOT_NEEDED = "not needed"


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceStatus:
    """One slice of a stage; a stage without an array has one."""

    slice_index: int
    status: Status
    source: str
    """Where the status comes from: `record`, `squeue`, `sacct`, `local`, `ledger`."""
    reason: str = ""
    state: str | None = None
    """Slurm's own word, where Slurm was asked and knew."""
    job_id: str | None = None
    attempt: int = 0
    """The newest; 0 before the first."""
    failed_attempt: int | None = None
    """Of the failure that `reason` should tell of; its record has the details."""
    start_unix_s: float | None = None
    """Of a pending task: expected; of a running one: when it started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStatus:
    """One stage."""

    stage: StageSummary
    status: Status
    slices: tuple[SliceStatus, ...]
    reason: str = ""

    @property
    def counts(self) -> Mapping[Status, int]:
        """Number of slices by status."""
        return Counter(s.status for s in self.slices)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """A run."""

    status: Status
    stages: tuple[StageStatus, ...]
    problems: tuple[str, ...] = ()
    """Sources that could not be asked."""

    def stage(self, name: str) -> StageStatus:
        """The stage of that name.

        Raises:
            KeyError: there is none.
        """
        for stage in self.stages:
            if stage.stage.name == name:
                return stage
        raise KeyError(name)


def reconcile(run: RunRecords, answer: Answer) -> RunStatus:
    """Status of every slice, stage and the run."""
    stages: dict[str, StageStatus] = {}
    for summary in run.stages:
        newest = latest_intents(run.intents, summary.name)
        records = run.records[summary.name]
        slices = tuple(
            slice_status(i, newest.get(i), records, answer) for i in range(summary.num_slices)
        )
        stages[summary.name] = _stage_status(summary, slices, stages)
    listed = tuple(stages.values())
    return RunStatus(status=_run_status(listed), stages=listed, problems=answer.problems)


def completed_slices(records: StageRecords, newest: Mapping[int, Intent]) -> frozenset[int]:
    """Slices whose newest intent has a completed attempt."""
    return frozenset(
        index for index in newest if _own_outcome(index, newest[index], records, "completed")
    )


def _own_outcome(index: int, intent: Intent, records: StageRecords, outcome: Outcome) -> int | None:
    """Newest attempt of this intent's that ended so."""
    base = intent.base_attempts.get(index, 0)
    ends = records.outcomes.get(index, {})
    return max((a for a, word in ends.items() if a > base and word == outcome), default=None)


def slice_status(
    index: int, intent: Intent | None, records: StageRecords, answer: Answer
) -> SliceStatus:
    """Status of one slice."""
    if intent is None:
        return SliceStatus(
            slice_index=index, status="waiting", source="ledger", reason="not submitted"
        )
    if intent.refused is not None:
        reason = f"not submitted: {intent.refused}"
        return SliceStatus(slice_index=index, status="waiting", source="ledger", reason=reason)
    base = intent.base_attempts.get(index, 0)
    attempt = max((a for a in records.attempts.get(index, ()) if a > base), default=0)
    status = SliceStatus(
        slice_index=index,
        status="unknown",
        source="ledger",
        job_id=intent.element_id(index),
        attempt=attempt,
    )
    completed = _own_outcome(index, intent, records, "completed")
    if completed is not None:
        return replace(status, status="completed", source="record", attempt=completed)
    task = answer.tasks.get(status.job_id) if status.job_id is not None else None
    failed = _own_outcome(index, intent, records, "failed")
    if task is not None:
        known = _from_scheduler(status, task, intent, failed)
        stopped = _own_outcome(index, intent, records, "stopped")
        if known.status == "failed" and stopped is not None and stopped == attempt:
            reason = "asked to stop, it saved, and it was not requeued; `resume` goes on from there"
            return replace(known, reason=reason, failed_attempt=None)
        return known
    if failed is not None and failed == attempt:
        return replace(status, status="failed", source="record", failed_attempt=failed)
    return _without_scheduler(status, intent)


def _from_scheduler(
    status: SliceStatus, task: TaskAccounting, intent: Intent, failed: int | None
) -> SliceStatus:
    known = replace(status, source=task.source, state=task.state, start_unix_s=task.start_unix_s)
    if task.state in RUNNING_STATES:
        if failed is not None and failed == status.attempt and task.state == "COMPLETING":
            return replace(known, status="failed", source="record", failed_attempt=failed)
        return replace(known, status="running")
    if task.state in PENDING_STATES:
        if task.reason in NEVER_REASONS:
            return replace(known, status="stranded", reason=NEVER_REASONS[task.reason])
        return replace(known, status="waiting", reason=task.reason)
    if task.state != "CANCELLED" and failed is not None and failed == status.attempt:
        return replace(known, status="failed", failed_attempt=failed)
    if task.state == "CANCELLED" or intent.cancelled:
        return replace(known, status="cancelled", reason="cancelled")
    if task.state == "COMPLETED":
        reason = f"{task.source} says COMPLETED, but there is no completion record"
        return replace(known, status="unknown", reason=reason)
    if status.attempt == 0:
        reason = f"{task.state} before its supervisor started; see its log"
    else:
        reason = f"{task.state} without a completion record"
    return replace(known, status="failed", reason=reason)


def _without_scheduler(status: SliceStatus, intent: Intent) -> SliceStatus:
    if intent.cancelled:
        return replace(status, status="cancelled", reason="cancelled")
    if intent.job_id is None:
        reason = "its submission was cut off; `resume` looks the job up and goes on"
        return replace(status, reason=reason)
    if status.attempt:
        reason = "it started, has no completion record, and the scheduler does not know it"
        return replace(status, source="record", reason=reason)
    return replace(status, reason="the scheduler does not know it")


def _stage_status(
    summary: StageSummary, slices: tuple[SliceStatus, ...], parents: Mapping[str, StageStatus]
) -> StageStatus:
    cause = _never_cause(summary, parents)
    if cause is not None:
        slices = tuple(
            replace(s, status="stranded", reason=cause)
            if s.status == "stranded" or (s.status == "waiting" and s.job_id is not None)
            else s
            for s in slices
        )
    counts = Counter(s.status for s in slices)
    order: tuple[Status, ...] = ("running", "failed", "unknown", "cancelled", "stranded", "waiting")
    status: Status = next((word for word in order if counts[word]), "completed")
    if status in {"failed", "cancelled", "unknown"} and counts["waiting"]:
        status = "running" if counts["completed"] or counts["failed"] else status
    reason = cause if status == "stranded" and cause else ""
    return StageStatus(stage=summary, status=status, slices=slices, reason=reason)


def _never_cause(summary: StageSummary, parents: Mapping[str, StageStatus]) -> str | None:
    """Why this stage can never start, named by the stage where it began."""
    for parent, kind in summary.after.items():
        above = parents[parent]
        if above.status == "stranded":
            return above.reason or f"`{parent}` can never start"
        if kind == "afterok" and above.status in {"failed", "cancelled"}:
            return f"`{parent}` {above.status}"
        if kind == "afternotok" and above.status == "completed":
            return f"{NOT_NEEDED}: `{parent}` completed"
    return None


def _run_status(stages: tuple[StageStatus, ...]) -> Status:
    """Going while anything runs, or waits that can start; then the worst that happened."""
    needed = [s for s in stages if not s.reason.startswith(NOT_NEEDED)]
    words = {stage.status for stage in needed}
    worst_first: tuple[Status, ...] = (
        "running",
        "waiting",
        "failed",
        "unknown",
        "cancelled",
        "stranded",
    )
    return next((word for word in worst_first if word in words), "completed")
