"""Status of one slice: (intent, records, scheduler's answer) -> status with source. PURE.

Only a completion record proves that work is done. The scheduler's word explains a failure; it never
proves a success. Unknown is never success, and never failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from slurm_jobs.common.records import CompletionName, Outcome, TaskAccounting
from slurm_jobs.run.intents import Intent
from slurm_jobs.run.model import StageRecords
from slurm_jobs.schedulers.local_state import NO_RUNNER
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.schedulers.states import (
    LIVING_STATES,
    NEVER,
    PENDING_STATES,
    RUNNING_STATES,
    Wait,
    wait_of,
)

Status = Literal["waiting", "running", "completed", "failed", "cancelled", "stranded", "unknown"]

RUNNER_STARTS_ANEW = "the local runner has ended; `resume` starts one"
NOT_SUBMITTED = "not submitted"
BEFORE_SUPERVISOR = (
    "its supervisor never started, so a line of `setup:` has ended the job (`exit 0`, `exec`); "
    "`logs --supervisor` shows what it printed"
)
STOPPED_AND_LEFT = "stopped after saving, and was not requeued; `resume` continues from there"
CANCELLED_UNSEEN = "an array task that was cancelled while it waited looks like this"
"""squeue forgets such a task within minutes, and sacct of Slurm 22.05 never has it."""
CANCELLED = "cancelled"
"""Reason of a slice that `slurm-jobs cancel` cancelled."""
CANCELLED_ELSEWHERE = "cancelled by scancel, an administrator or Slurm itself"


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceStatus:
    """Status of one slice of a stage; a stage without an array has one slice."""

    slice_index: int
    status: Status
    source: str
    """`record`, `squeue`, `sacct`, `local` or `ledger`."""
    reason: str = ""
    state: str | None = None
    """Slurm's own word, if Slurm was queried and knew the job."""
    job_id: str | None = None
    attempt: int = 0
    """Newest attempt; 0 before the first."""
    ending: CompletionName | None = None
    """Record of the completion, or of the failure that `reason` describes."""
    start_unix_s: float | None = None
    """Start time: expected for a pending task, actual for a running one."""
    wait: Wait = ""
    """Reason of a pending task that will not start without intervention."""

    @property
    def may_live(self) -> bool:
        """True if a job may be working on this slice, or may still reach it."""
        return self.job_id is not None and (self.state is None or self.state in LIVING_STATES)


def completed_slices(records: StageRecords, newest: Mapping[int, Intent]) -> frozenset[int]:
    """Return the slices whose newest intent has a completed attempt."""
    return frozenset(
        index for index in newest if _own_ending(index, newest[index], records, "completed")
    )


def _own_ending(
    index: int, intent: Intent, records: StageRecords, outcome: Outcome
) -> CompletionName | None:
    """Return the newest end of this kind among the attempts of this intent's job."""
    own = (
        ending
        for ending in records.endings.get(index, {}).values()
        if ending.token == intent.token and ending.outcome == outcome
    )
    return max(own, default=None)


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
        several_partitions: its job may start in any of them, and is pending for the reason of the
            one that was tried last.
    """
    if intent is None or intent.refused is not None:
        if is_submitting:
            return _not_submitted(index, "waiting", NOT_SUBMITTED + " yet")
        why = f": {intent.refused}" if intent is not None else ""
        return _not_submitted(index, "stranded", f"{NOT_SUBMITTED}{why}; `resume` submits it")
    status = SliceStatus(
        slice_index=index,
        status="unknown",
        source="ledger",
        job_id=intent.element_id(index),
        attempt=_own_attempt(index, intent, records),
    )
    task = answer.tasks.get(status.job_id) if status.job_id is not None else None
    completed = _own_ending(index, intent, records, "completed")
    if completed is not None:
        state = task.state if task is not None else None
        done = replace(status, attempt=completed.attempt, ending=completed, state=state)
        if task is not None and task.state == "TIMEOUT":
            done = replace(done, reason=_time_limit_reason(task))
        return replace(done, status="completed", source="record")
    failed = _own_ending(index, intent, records, "failed")
    if task is not None:
        known = _from_scheduler(status, task, intent, failed)
        if several_partitions and known.wait in {"never", "blocked"} and task.reason != NEVER:
            known = replace(known, status="waiting", reason=task.reason, wait="")
        if _was_not_started(task):
            return known
        return _stopped_and_left(_in_its_turn(known, intent, records, failed), intent, records)
    if failed is not None and failed.attempt == status.attempt:
        return replace(status, status="failed", source="record", ending=failed)
    if intent.job_id is None and is_submitting and index not in intent.cancelled_slices:
        return replace(status, status="waiting", reason="it is being submitted")
    return _without_scheduler(status, intent, answer)


def _stopped_and_left(status: SliceStatus, intent: Intent, records: StageRecords) -> SliceStatus:
    """Adjust a status whose failure is a graceful stop after which the task was not requeued."""
    stopped = _own_ending(status.slice_index, intent, records, "stopped")
    if status.status != "failed" or stopped is None or stopped.attempt != status.attempt:
        return status
    return replace(status, reason=STOPPED_AND_LEFT, ending=None)


def _not_submitted(index: int, status: Status, reason: str) -> SliceStatus:
    return SliceStatus(slice_index=index, status=status, source="ledger", reason=reason)


def _from_scheduler(
    status: SliceStatus, task: TaskAccounting, intent: Intent, failed: CompletionName | None
) -> SliceStatus:
    has_failed = failed is not None and failed.attempt == status.attempt
    known = replace(status, source=task.source, state=task.state, start_unix_s=task.start_unix_s)
    if task.state in RUNNING_STATES:
        if has_failed and task.state == "COMPLETING":
            return replace(known, status="failed", source="record", ending=failed)
        return replace(known, status="running")
    if task.state in PENDING_STATES:
        return _pending(known, task)
    if task.state != "CANCELLED" and has_failed:
        reason = _time_limit_reason(task) if task.state == "TIMEOUT" else ""
        return replace(known, status="failed", ending=failed, reason=reason)
    is_ours = status.slice_index in intent.cancelled_slices
    if task.state == "CANCELLED" or is_ours:
        reason = CANCELLED if is_ours else CANCELLED_ELSEWHERE
        return replace(known, status="cancelled", reason=reason)
    if task.state == "COMPLETED":
        reason = f"{task.source} says COMPLETED, but there is no completion record"
        if status.attempt == 0:
            reason += f": {BEFORE_SUPERVISOR}"
        return replace(known, status="unknown", reason=reason)
    return replace(known, status="failed", reason=_unrecorded_reason(task, status.attempt))


def _unrecorded_reason(task: TaskAccounting, attempt: int) -> str:
    """Return why a task without a failure record failed; `attempt` is 0 before the first."""
    if _was_not_started(task) or _runner_ended(task) or _ran_out_of_memory(task):
        return task.reason
    if task.state == "TIMEOUT":
        early = "" if attempt else " before its supervisor started; see its log"
        return _time_limit_reason(task) + early
    if attempt:
        return f"{task.state} without a completion record"
    reason = f"{task.state} before its supervisor started; see its log"
    if task.state == "FAILED":
        reason += " for what a line of `setup:` printed, or the Python that it starts"
    return reason


def _time_limit_reason(task: TaskAccounting) -> str:
    limit = f" of {task.time_limit_s / 60:g} min" if task.time_limit_s else ""
    return f"reached its time limit{limit} (resources.timeout_min)"


def _pending(known: SliceStatus, task: TaskAccounting) -> SliceStatus:
    """Return the status of a task in the queue; accounting's reason is as old as its submission."""
    if task.reason == NO_RUNNER:
        return replace(known, status="stranded", reason=RUNNER_STARTS_ANEW)
    if task.reason == NEVER:
        return replace(known, status="stranded", reason=NEVER, wait="never")
    wait, meaning = wait_of(task.state, task.reason) if task.source == "squeue" else ("", "")
    words = task.reason or task.state
    words = f"{words}: {meaning}" if meaning else words
    if wait == "held":
        reason = f"held ({words})"
    elif wait == "held_by_admin":
        reason = f"held by an administrator ({words})"
    elif wait == "never":
        reason = f"can never start ({words})"
    else:
        return replace(known, status="waiting", reason=words if wait else task.reason, wait=wait)
    return replace(known, status="stranded", reason=reason, wait=wait)


def _ran_out_of_memory(task: TaskAccounting) -> bool:
    """Check whether the local scheduler ended a task for its memory; only it reports how much."""
    return task.source == "local" and task.state == "OUT_OF_MEMORY" and bool(task.reason)


def _runner_ended(task: TaskAccounting) -> bool:
    """Check whether the local scheduler was killed with the task; then no node has failed."""
    return task.source == "local" and task.state == "NODE_FAIL" and bool(task.reason)


def _was_not_started(task: TaskAccounting) -> bool:
    """Check whether the local scheduler could not start it; Slurm has no such state or reason."""
    return task.source == "local" and task.state == "FAILED" and bool(task.reason)


def _in_its_turn(
    status: SliceStatus, intent: Intent, records: StageRecords, failed: CompletionName | None
) -> SliceStatus:
    """Adjust a status where one array task processes several slices, one at a time."""
    beside = intent.slices_beside(status.slice_index) if intent.slices_per_task else ()
    others = [i for i in beside if i != status.slice_index]
    if status.status == "failed" and not status.attempt:
        begun = any(_own_attempt(i, intent, records) for i in others)
        return replace(status, reason=f"{status.state} before its turn came") if begun else status
    if status.status != "running" or _is_open(status.slice_index, intent, records):
        return status
    if any(_is_open(i, intent, records) for i in others):
        if failed is not None and failed.attempt == status.attempt:
            return replace(status, status="failed", source="record", ending=failed)
        return replace(status, status="waiting", reason="its array task is at another slice")
    return status


def _is_open(index: int, intent: Intent, records: StageRecords) -> bool:
    """Check whether the newest attempt of this intent has not ended."""
    attempt = _own_attempt(index, intent, records)
    return attempt > 0 and attempt not in records.endings.get(index, {})


def _own_attempt(index: int, intent: Intent, records: StageRecords) -> int:
    """Return the newest attempt of this intent; 0 before the first."""
    base = intent.base_attempts.get(index, 0)
    return max((a for a in records.attempts.get(index, ()) if a > base), default=0)


def _without_scheduler(status: SliceStatus, intent: Intent, answer: Answer) -> SliceStatus:
    if status.slice_index in intent.cancelled_slices:
        return replace(status, status="cancelled", reason=CANCELLED)
    if intent.job_id is None:
        reason = "its submission was cut off; `resume` looks for the job and continues"
        return replace(status, reason=reason)
    silent = ", ".join(problem.partition(":")[0] for problem in answer.problems)
    lags = answer.lagging.get(status.job_id or "")
    if lags is not None:
        reason = f"squeue knows it no longer, and sacct lags behind: it still says {lags}"
    elif silent:
        reason = f"no source knows it, and {silent} could not be asked"
    else:
        reason = "the scheduler does not know it"
    if status.attempt:
        reason = f"it started, has no completion record, and {reason}"
        return replace(status, source="record", reason=reason)
    if lags is None and not silent:
        reason += f" ({CANCELLED_UNSEEN}); `resume` runs it"
    return replace(status, reason=reason)
