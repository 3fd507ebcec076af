"""Status of one slice: (intent, records, answer of the scheduler) -> status with source and reason.

Only a completion record proves that work is done. The scheduler's word explains a failure; it
never proves a success. Unknown is never success, and never failure. PURE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from slurm_jobs.base.units import num_bytes
from slurm_jobs.formats.records.attempt_records import CompletionName, TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_values import StageRecords
from slurm_jobs.schedulers.job_states import (
    LIVING_STATES,
    NEVER,
    PENDING_STATES,
    RUNNING_STATES,
    Wait,
    wait_of,
)
from slurm_jobs.schedulers.local_state import NO_RUNNER
from slurm_jobs.schedulers.protocol import Answer

Status = Literal["waiting", "running", "completed", "failed", "cancelled", "stranded", "unknown"]


SliceCause = Literal[
    "not submitted",
    "no runner",
    "cancelled here",
    "cancelled elsewhere",
    "stopped and left",
]
"""Why a slice has its status, where a command decides by it.

- `not submitted`: no job works on it, and none will.
- `no runner`: the local runner of its job has ended.
- `cancelled here`: by `slurm-jobs cancel`; `cancelled elsewhere`: by anything else.
- `stopped and left`: it saved its work when it was asked to stop, and was not requeued.
"""
STOPPED_AND_LEFT = "stopped after saving, and was not requeued; `resume` continues from there"
UNRECORDED = (
    "before its supervisor could record why, because it was killed or lost its node or its disk; "
    "`logs --supervisor` shows what it printed last"
)
CANCELLED_ELSEWHERE = "cancelled by scancel, an administrator or Slurm itself"


_CURRENT = ("squeue", "scontrol")
"""Sources whose pending reason is current; sacct's dates from the submission."""
_STRANDING: dict[Wait, str] = {
    "held": "held",
    "held_by_admin": "held by an administrator",
    "never": "can never start",
}
"""Waits that strand a pending job, in words; a `blocked` one may still start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceStatus:
    """Status of one slice of a stage; a stage without an array has one slice."""

    slice_index: int
    status: Status
    source: str
    """`record`, `squeue`, `scontrol`, `sacct`, `local` or `ledger`."""
    reason: str = ""
    state: str | None = None
    """Slurm's own word, if Slurm was queried and knew the job."""
    job: JobKey | None = None
    attempt: int = 0
    """Newest attempt; 0 before the first."""
    ending: CompletionName | None = None
    """Record of the completion, or of the failure that `reason` describes."""
    start_unix_s: float | None = None
    """Start time: expected for a pending task, actual for a running one."""
    wait: Wait = ""
    """Reason of a pending task that will not start without intervention."""
    cause: SliceCause | None = None

    @property
    def job_id(self) -> str | None:
        """Id of the job or array element, for display."""
        return None if self.job is None else self.job.job_id

    @property
    def may_live(self) -> bool:
        """True if a job may be working on this slice, or may still reach it."""
        return self.job is not None and (self.state is None or self.state in LIVING_STATES)


def completed_slices(records: StageRecords, newest: Mapping[int, Intent]) -> frozenset[int]:
    """Return the slices whose newest intent has a completed attempt."""
    return frozenset(i for i, intent in newest.items() if completion_of(i, intent, records))


def completion_of(index: int, intent: Intent, records: StageRecords) -> CompletionName | None:
    """Return the newest completion among the attempts of this intent's job; None without one."""
    endings = records.endings.get(index, {}).values()
    entries = (e for e in endings if e.token == intent.token and e.outcome == "completed")
    return max(entries, default=None)


def newest_attempt(
    index: int, intent: Intent, records: StageRecords
) -> tuple[int, CompletionName | None]:
    """Return the newest attempt since this intent (0 before the first), and its ending."""
    base = intent.base_attempts.get(index, 0)
    attempt = max((a for a in records.attempts.get(index, ()) if a > base), default=0)
    return attempt, records.endings.get(index, {}).get(attempt)


def slice_status(
    index: int,
    intent: Intent | None,
    records: StageRecords,
    answer: Answer,
    *,
    is_submitting: bool = False,
    several_partitions: bool = False,
) -> SliceStatus:
    """Return the status of one slice.

    Args:
        index: number of the slice.
        intent: the newest of the slice.
        records: records of its stage.
        answer: answer of the scheduler.
        is_submitting: a command is about to submit what is not submitted yet.
        several_partitions: its job names several partitions. Slurm then gives the reason of the one
            that it tried last, although the job may start in another.
    """
    if intent is None or intent.refused is not None:
        why = f": {intent.refused}" if intent is not None else ""
        reason = f"not submitted{why}; `resume` submits it"
        return to_be_submitted(index, reason, is_submitting=is_submitting)
    attempt, ending = newest_attempt(index, intent, records)
    outcome = None
    if ending is not None and ending.token == intent.token:
        outcome = ending.outcome
    failed = ending if outcome == "failed" else None
    completed = completion_of(index, intent, records)  # possibly of an attempt before the newest
    job = intent.element(index)
    task = answer.tasks.get(job) if job is not None else None
    known = SliceStatus(
        slice_index=index,
        status="unknown",
        source="ledger",
        job=job,
        attempt=attempt,
        state=task.state if task is not None else None,
    )
    if completed is not None:
        return replace(
            known,
            status="completed",
            source="record",
            attempt=completed.attempt,
            ending=completed,
            reason=_time_limit_reason(task) if task is not None and task.state == "TIMEOUT" else "",
        )
    if task is None and failed is not None:
        return replace(known, status="failed", source="record", ending=failed)
    if task is None:
        return _without_task(known, intent, answer, is_submitting=is_submitting)
    known = replace(known, source=task.source, start_unix_s=task.start_unix_s)
    if task.state == "FAILED" and _local_scheduler_explains(task):
        # It was not started, so neither attempts nor other slices explain it.
        return _ended(known, task, intent, failed)
    if task.state in PENDING_STATES:
        of_task = _pending(known, task, several_partitions=several_partitions)
    elif task.state in RUNNING_STATES:
        of_task = _running(known, task, intent, failed)
    else:
        of_task = _ended(known, task, intent, failed)
    if outcome == "stopped" and of_task.status == "failed":
        return replace(of_task, reason=STOPPED_AND_LEFT, cause="stopped and left", ending=None)
    is_in_progress = attempt > 0 and ending is None
    if intent.slices_per_task and not is_in_progress:
        return _of_shared_task(of_task, intent, records, failed)
    return of_task


def to_be_submitted(index: int, reason: str, *, is_submitting: bool) -> SliceStatus:
    """Return the status of a slice that no job works on; `reason` is why it is stranded."""
    status: Status = "waiting" if is_submitting else "stranded"
    reason = "not submitted yet" if is_submitting else reason
    return SliceStatus(
        slice_index=index,
        status=status,
        source="ledger",
        reason=reason,
        cause=None if is_submitting else "not submitted",
    )


def _pending(known: SliceStatus, task: TaskAccounting, *, several_partitions: bool) -> SliceStatus:
    """Return the status of a task in the queue."""
    if task.reason == NO_RUNNER:
        reason = "the local runner has ended; `resume` starts one"
        return replace(known, status="stranded", reason=reason, cause="no runner")
    wait, meaning = wait_of(task.state, task.reason)
    if wait == "unmet":  # it stays so, so sacct may say it, too, whose answer may be old
        return replace(known, status="stranded", reason=NEVER, wait=wait)
    may_start_in_another = several_partitions and wait in {"never", "blocked"}
    is_current = task.source in _CURRENT
    is_wait_certain = wait and is_current and not may_start_in_another
    if not is_wait_certain:
        return replace(known, status="waiting", reason=task.reason)
    reason = task.reason or task.state
    if meaning:
        reason = f"{reason}: {meaning}"
    if wait not in _STRANDING:
        return replace(known, status="waiting", reason=reason, wait=wait)
    reason = f"{_STRANDING[wait]} ({reason})"
    return replace(known, status="stranded", reason=reason, wait=wait)


def _running(
    known: SliceStatus, task: TaskAccounting, intent: Intent, failed: CompletionName | None
) -> SliceStatus:
    """Return the status of a task that runs or is ending, without a completion."""
    if failed is not None and task.state == "COMPLETING":
        return replace(known, status="failed", source="record", ending=failed)
    is_cancelled = known.slice_index in intent.cancelled_slices
    return replace(known, status="running", cause="cancelled here" if is_cancelled else None)


def _ended(
    known: SliceStatus, task: TaskAccounting, intent: Intent, failed: CompletionName | None
) -> SliceStatus:
    """Return the status of a task that has ended without a completion."""
    is_cancelled = task.state == "CANCELLED"
    is_ours = known.slice_index in intent.cancelled_slices
    if is_ours and (is_cancelled or failed is None):
        return _cancelled_here(known)
    if is_cancelled:
        return replace(
            known, status="cancelled", reason=CANCELLED_ELSEWHERE, cause="cancelled elsewhere"
        )
    time_limit = _time_limit_reason(task) if task.state == "TIMEOUT" else ""
    if failed is not None:
        return replace(known, status="failed", ending=failed, reason=time_limit)
    if task.state == "COMPLETED":
        reason = f"{task.source} says COMPLETED, but there is no completion record"
        if not known.attempt:
            reason += (
                ": its supervisor never started, so a line of `setup:` has ended the job "
                "(`exit 0`, `exec`); `logs --supervisor` shows what it printed"
            )
        return replace(known, status="unknown", reason=reason)
    if _local_scheduler_explains(task):
        return replace(known, status="failed", reason=task.reason)
    if known.attempt:
        return replace(known, status="failed", reason=time_limit or unrecorded_text(task))
    reason = f"{time_limit or task.end_text} before its supervisor started; see its log"
    if task.state == "FAILED" and not task.signal:
        reason += " for errors of `setup:` or of Python"
    return replace(known, status="failed", reason=reason)


def is_over_memory(task: TaskAccounting) -> bool:
    """Check whether a task that failed had used more memory than it requested.

    A site that kills such tasks by JobAcctGatherParams=OverMemoryKill calls them FAILED.
    """
    if task.max_rss_bytes is None or task.requested_mem_bytes is None:
        return False
    return task.state == "FAILED" and task.max_rss_bytes > task.requested_mem_bytes


def unrecorded_text(task: TaskAccounting) -> str:
    """Return why a task failed whose supervisor could not record it."""
    if not is_over_memory(task):
        return f"{task.state} {UNRECORDED}"
    used, requested = (num_bytes(n or 0.0) for n in (task.max_rss_bytes, task.requested_mem_bytes))
    return (
        f"{task.state} after it had used {used} of the {requested} of memory that it requested "
        "(resources.mem_gb), so Slurm or the node killed it; `logs --supervisor` shows what it "
        "printed last"
    )


def _cancelled_here(known: SliceStatus) -> SliceStatus:
    reason = "by `slurm-jobs cancel`"
    return replace(known, status="cancelled", reason=reason, cause="cancelled here")


def _time_limit_reason(task: TaskAccounting) -> str:
    limit = f" of {task.time_limit_s / 60:g} min" if task.time_limit_s else ""
    return f"reached its time limit{limit} (resources.timeout_min)"


def _local_scheduler_explains(task: TaskAccounting) -> bool:
    """Check whether the local scheduler, not the stage, ended a task or could not start it.

    It says how much memory the task took, that its runner was killed with the task, or why the task
    was not started. Slurm has no such reasons.
    """
    is_known = task.state in {"OUT_OF_MEMORY", "NODE_FAIL", "FAILED"}
    return is_known and task.source == "local" and bool(task.reason)


def _of_shared_task(
    status: SliceStatus, intent: Intent, records: StageRecords, failed: CompletionName | None
) -> SliceStatus:
    """Return the status of a slice whose array task processes several, one at a time.

    `status` is what the task's state alone would mean. The slice is not in progress itself.
    """
    another_has_begun = another_is_in_progress = False
    for other in intent.slices_of_same_element(status.slice_index):
        attempt, ending = newest_attempt(other, intent, records)
        if other != status.slice_index and attempt > 0:
            another_has_begun = True
            another_is_in_progress = another_is_in_progress or ending is None
    if status.status == "failed" and not status.attempt and another_has_begun:
        return replace(status, reason=f"{status.state} before its turn came")
    if status.status == "running" and another_is_in_progress:
        if failed is not None:
            return replace(status, status="failed", source="record", ending=failed)
        return replace(status, status="waiting", reason="its array task processes another slice")
    return status


def _without_task(
    known: SliceStatus, intent: Intent, answer: Answer, *, is_submitting: bool
) -> SliceStatus:
    """Return the status of a slice that neither completed nor failed, whose job no source lists.

    An attempt may have left the record of its start, or that it stopped.
    """
    job = known.job
    if known.slice_index in intent.cancelled_slices:
        return _cancelled_here(known)
    if job is None:
        if is_submitting:
            return replace(known, status="waiting", reason="it is being submitted")
        reason = "its submission was cut off; `resume` looks for the job and continues"
        return replace(known, status="unknown", reason=reason)
    if job in answer.doubts or job.job in answer.doubts:  # the element, or its whole array
        reason = "no source of Slurm says yet whether it lives"
        return replace(known, status="running" if known.attempt else "waiting", reason=reason)
    unreachable = ", ".join(problem.source for problem in answer.problems)
    stale_state = answer.lagging.get(job)
    if stale_state is not None:
        reason = f"squeue no longer knows it, and sacct lags behind: it still says {stale_state}"
    elif unreachable:
        reason = f"no source knows it, and {unreachable} could not be queried"
    else:
        reason = "the scheduler does not know it"
    if known.attempt:
        reason = f"it started, has no completion record, and {reason}"
        return replace(known, status="unknown", source="record", reason=reason)
    if stale_state is None and not unreachable:
        # squeue forgets such a task within minutes, and sacct of Slurm 22.05 never has it.
        reason += " (an array task that was cancelled while it waited looks like this)"
        reason += "; `resume` runs it"
    return replace(known, status="unknown", reason=reason)
