"""Status of a run: (plan, ledger, records, scheduler's answer) -> status with source.

Only a completion record proves that work is done. The scheduler's word explains a failure; it
never proves a success. Unknown is never success, and never failure. PURE.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from slurm_jobs.dependencies import Slices
from slurm_jobs.run_folder.ledger import Intent, latest_intents
from slurm_jobs.run_folder.run_records import RunRecords, StageRecords, StageSummary
from slurm_jobs.schedulers.local_state import NO_RUNNER
from slurm_jobs.schedulers.protocol import (
    LIVING_STATES,
    NEVER,
    PENDING_STATES,
    RUNNING_STATES,
    Answer,
    Doubt,
    Wait,
    wait_of,
)
from slurm_jobs.shared.job_key import JobKey
from slurm_jobs.shared.records import CompletionName, TaskAccounting

Status = Literal["waiting", "running", "completed", "failed", "cancelled", "stranded", "unknown"]

DECIDING_FIRST: tuple[Status, ...] = (
    "running",
    "waiting",
    "failed",
    "unknown",
    "cancelled",
    "stranded",
)
"""Precedence: a run has the first of these statuses that one of its stages has."""
STOPPED_AND_LEFT = "stopped after saving, and was not requeued; `resume` continues from there"
UNRECORDED = (
    "before its supervisor could record why, because it was killed or lost its node or its disk; "
    "`logs --supervisor` shows what it printed last"
)
CANCELLED = "cancelled"
"""Reason of a slice that `slurm-jobs cancel` cancelled."""
CANCELLED_ELSEWHERE = "cancelled by scancel, an administrator or Slurm itself"
_UNSUCCESSFUL = frozenset({"failed", "cancelled", "stranded"})
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
        several_partitions: its job may start in any of them, and is pending for the reason of the
            one that was tried last.
    """
    if intent is None or intent.refused is not None:
        why = f": {intent.refused}" if intent is not None else ""
        reason = f"not submitted{why}; `resume` submits it"
        return _to_be_submitted(index, reason, is_submitting=is_submitting)
    attempt, ending = newest_attempt(index, intent, records)
    outcome = ending.outcome if ending is not None and ending.token == intent.token else None
    failed = ending if outcome == "failed" else None
    job = intent.element(index)
    task = answer.tasks.get(job) if job is not None else None
    status = SliceStatus(
        slice_index=index,
        status="unknown",
        source="ledger",
        job=job,
        attempt=attempt,
        state=task.state if task is not None else None,
    )
    completed = completion_of(index, intent, records)
    if completed is not None:
        reason = _time_limit_reason(task) if task is not None and task.state == "TIMEOUT" else ""
        status = replace(status, attempt=completed.attempt, ending=completed, reason=reason)
        return replace(status, status="completed", source="record")
    if task is not None:
        status = replace(status, source=task.source, start_unix_s=task.start_unix_s)
        if task.state in PENDING_STATES:
            status = _pending(status, task, several_partitions=several_partitions)
        else:
            status = _running_or_ended(status, task, intent, failed)
        if _has_local_reason(task) and task.state == "FAILED":
            return status  # it was not started, so no other slice or attempt explains this
        is_open = attempt > 0 and ending is None
        if intent.slices_per_task and not is_open:
            status = _of_shared_task(status, intent, records, failed)
        if status.status == "failed" and outcome == "stopped":
            return replace(status, reason=STOPPED_AND_LEFT, ending=None)
        return status
    if failed is not None:
        return replace(status, status="failed", source="record", ending=failed)
    if intent.job_id is None and is_submitting and index not in intent.cancelled_slices:
        return replace(status, status="waiting", reason="it is being submitted")
    if index not in intent.cancelled_slices and _is_open(job, answer):
        return replace(status, status="running" if attempt else "waiting", reason=_OPEN)
    return _without_scheduler(status, intent, answer)


_OPEN = "no source of Slurm says yet whether it lives"


def _is_open(job: JobKey | None, answer: Answer) -> bool:
    """Check whether a job that no source lists may be alive all the same."""
    return job is not None and not answer.doubts.keys().isdisjoint((job, job.job))


def _to_be_submitted(index: int, reason: str, *, is_submitting: bool) -> SliceStatus:
    """Return the status of a slice that no job works on; `reason` is why it is stranded."""
    status: Status = "waiting" if is_submitting else "stranded"
    reason = "not submitted yet" if is_submitting else reason
    return SliceStatus(slice_index=index, status=status, source="ledger", reason=reason)


def _pending(known: SliceStatus, task: TaskAccounting, *, several_partitions: bool) -> SliceStatus:
    """Return the status of a task in the queue."""
    if task.reason == NO_RUNNER:
        reason = "the local runner has ended; `resume` starts one"
        return replace(known, status="stranded", reason=reason)
    wait, meaning = wait_of(task.state, task.reason)
    if wait == "unmet":
        return replace(known, status="stranded", reason=NEVER, wait=wait)
    if task.source not in _CURRENT or not wait:
        return replace(known, status="waiting", reason=task.reason)
    if several_partitions and wait in {"never", "blocked"}:
        return replace(known, status="waiting", reason=task.reason)
    words = task.reason or task.state
    words = f"{words}: {meaning}" if meaning else words
    if wait not in _STRANDING:
        return replace(known, status="waiting", reason=words, wait=wait)
    return replace(known, status="stranded", reason=f"{_STRANDING[wait]} ({words})", wait=wait)


def _running_or_ended(
    known: SliceStatus, task: TaskAccounting, intent: Intent, failed: CompletionName | None
) -> SliceStatus:
    """Return the status of a task that runs or has ended, without a completion."""
    if task.state in RUNNING_STATES:
        if failed is not None and task.state == "COMPLETING":
            return replace(known, status="failed", source="record", ending=failed)
        return replace(known, status="running")
    is_ours = known.slice_index in intent.cancelled_slices
    if task.state == "CANCELLED" or (is_ours and failed is None):
        reason = CANCELLED if is_ours else CANCELLED_ELSEWHERE
        return replace(known, status="cancelled", reason=reason)
    reason = _time_limit_reason(task) if task.state == "TIMEOUT" else ""
    if failed is not None:
        return replace(known, status="failed", ending=failed, reason=reason)
    if task.state == "COMPLETED":
        reason = f"{task.source} says COMPLETED, but there is no completion record"
        if not known.attempt:
            reason += (
                ": its supervisor never started, so a line of `setup:` has ended the job "
                "(`exit 0`, `exec`); `logs --supervisor` shows what it printed"
            )
        return replace(known, reason=reason)
    if _has_local_reason(task):
        reason = task.reason
    elif not known.attempt:
        reason = f"{reason or task.state} before its supervisor started; see its log"
        if task.state == "FAILED":
            reason += " for errors of `setup:` or of Python"
    elif not reason:
        reason = f"{task.state} {UNRECORDED}"
    return replace(known, status="failed", reason=reason)


def _time_limit_reason(task: TaskAccounting) -> str:
    limit = f" of {task.time_limit_s / 60:g} min" if task.time_limit_s else ""
    return f"reached its time limit{limit} (resources.timeout_min)"


def _has_local_reason(task: TaskAccounting) -> bool:
    """Check whether the local scheduler, not the stage, ended a task or could not start it.

    It says how much memory the task took, that its runner was killed with the task, or why the task
    was not started. Slurm has no such reasons.
    """
    is_known = task.state in {"OUT_OF_MEMORY", "NODE_FAIL", "FAILED"}
    return is_known and task.source == "local" and bool(task.reason)


def _of_shared_task(
    status: SliceStatus, intent: Intent, records: StageRecords, failed: CompletionName | None
) -> SliceStatus:
    """Adjust a status where one array task processes several slices, one at a time."""
    others = (
        newest_attempt(i, intent, records)
        for i in intent.slices_of_same_element(status.slice_index)
        if i != status.slice_index
    )
    if status.status == "failed" and not status.attempt:
        if any(attempt for attempt, _ in others):
            return replace(status, reason=f"{status.state} before its turn came")
    elif status.status == "running" and any(a and ending is None for a, ending in others):
        if failed is not None:
            return replace(status, status="failed", source="record", ending=failed)
        return replace(status, status="waiting", reason="its array task processes another slice")
    return status


def _without_scheduler(status: SliceStatus, intent: Intent, answer: Answer) -> SliceStatus:
    if status.slice_index in intent.cancelled_slices:
        return replace(status, status="cancelled", reason=CANCELLED)
    if intent.job_id is None:
        reason = "its submission was cut off; `resume` looks for the job and continues"
        return replace(status, reason=reason)
    unreachable = ", ".join(problem.partition(":")[0] for problem in answer.problems)
    lags = answer.lagging.get(status.job) if status.job is not None else None
    if lags is not None:
        reason = f"squeue no longer knows it, and sacct lags behind: it still says {lags}"
    elif unreachable:
        reason = f"no source knows it, and {unreachable} could not be queried"
    else:
        reason = "the scheduler does not know it"
    if status.attempt:
        reason = f"it started, has no completion record, and {reason}"
        return replace(status, source="record", reason=reason)
    if lags is None and not unreachable:
        # squeue forgets such a task within minutes, and sacct of Slurm 22.05 never has it.
        reason += " (an array task that was cancelled while it waited looks like this)"
        reason += "; `resume` runs it"
    return replace(status, reason=reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStatus:
    """Status of one stage."""

    stage: StageSummary
    status: Status
    slices: tuple[SliceStatus, ...]
    reason: str = ""
    wait: Wait = ""
    """Kind of the wait that `reason` describes; empty for other reasons."""
    is_not_needed: bool = False
    """True if it can never start because the event that it handles did not happen."""
    stuck: Slices = frozenset()
    """Slices whose jobs stay in the queue, because they are held, over a limit, of earlier versions
    (`unmet`), or depend on such jobs. What depends on them does not start, whatever the kind."""

    @property
    def counts(self) -> Mapping[Status, int]:
        """Number of slices by status."""
        return Counter(s.status for s in self.slices)

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of the slices that have the stage's status."""
        names = {s.source for s in self.slices if s.status == self.status}
        return tuple(sorted(names or {s.source for s in self.slices}))


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
    doubts: Mapping[JobKey, Doubt] = field(default_factory=dict)
    """Jobs of which it is open whether they live, see `Answer`."""

    def stage(self, name: str) -> StageStatus:
        """Return the stage of that name.

        Raises:
            KeyError: there is none.
        """
        return {stage.stage.name: stage for stage in self.stages}[name]

    def query_time_of(self, sources: Iterable[str]) -> float | None:
        """Return the time of the oldest query of these sources; None for files of the run."""
        asked = {"squeue", "scontrol", "sacct", "local"}
        return self.asked_unix_s if asked.intersection(sources) else None


# Reasons why work can never start, named by the stage that caused it.

Parents = Sequence[tuple[str, StageStatus]]
"""Stages that a stage comes after, each with the kind of dependency."""


@dataclass(frozen=True, slots=True)
class _Cause:
    """Cause for which slices are stranded."""

    reason: str
    wait: Wait = ""
    is_not_needed: bool = False
    """True if they handle an event that did not happen."""

    def stranded(self, part: SliceStatus) -> SliceStatus:
        return replace(part, status="stranded", reason=self.reason, wait=self.wait)


def _stage_cause(parents: Parents) -> _Cause | None:
    """Return why a stage can never start.

    The scheduler removes a parent's job that can never start, which satisfies `afterany` and
    `afternotok`. If the job stays in the queue (`stuck`), they are not satisfied.
    """
    for kind, parent in parents:
        name, counts = f"`{parent.stage.name}`", parent.counts
        if kind == "afternotok" and parent.status == "completed":
            return _Cause(f"not needed: {name} completed", is_not_needed=True)
        is_met = kind != "afterok" and not parent.stuck
        if kind == "aftercorr" or is_met:
            continue
        waits = counts["running"] or counts["waiting"]
        if parent.status == "stranded" or (parent.stuck and not waits):
            return _cause_of(name, kind, parent)
        if kind == "afterok" and parent.status in {"failed", "cancelled"}:
            return _Cause(f"{name} {parent.status}")
        if kind == "afterok" and (counts["failed"] or counts["cancelled"]):
            return _Cause(f"{name} has slices that failed or were cancelled")
    return None


def _cause_of(name: str, kind: str, parent: StageStatus) -> _Cause:
    """Return why nothing that depends on the stage `parent` can start."""
    unknown = _Cause(f"{name} can never start")
    if parent.is_not_needed and kind != "afterok":
        return unknown  # its job is of an earlier version, and stays in the queue
    stuck_cause = _stuck_cause(name, parent.slices)
    if stuck_cause is not None:
        return stuck_cause
    for part in parent.slices:
        if part.slice_index in parent.stuck and part.reason and part.wait != "unmet":
            return _Cause(part.reason, part.wait)
    if not parent.reason:
        return unknown
    return _Cause(parent.reason, parent.wait, is_not_needed=parent.is_not_needed)


def _element_cause(part: SliceStatus, parents: Parents) -> _Cause | None:
    """Return why this slice alone can never start: its element in a parent stage (`aftercorr`)."""
    for kind, parent in parents:
        if kind != "aftercorr":
            continue
        above = parent.slices[part.slice_index]
        name = f"`{parent.stage.name}` slice {above.slice_index}"
        if above.status == "stranded":
            return _stuck_cause(name, [above]) or _Cause(
                above.reason, above.wait, is_not_needed=parent.is_not_needed
            )
        if above.status in {"failed", "cancelled"}:
            return _Cause(f"{name} {above.status}")
    return None


def _stuck_slices(
    summary: StageSummary,
    slices: Iterable[SliceStatus],
    parents: Parents,
    own: Mapping[int, Intent],
    stuck_jobs: dict[JobKey, _Cause],
) -> dict[int, _Cause | None]:
    """Return the stuck slices of a stage, each with the cause if its job waits for a stuck one.

    A job may wait for more than its stage comes after: for an earlier job of the same stage, and
    for all of an array of which the spec names single elements.

    Args:
        summary: the stage.
        slices: status of each slice.
        parents: of the stage.
        own: the newest intent, by slice.
        stuck_jobs: cause for what waits for a stuck job or element; those of this stage are added.
    """
    paired = [parent for kind, parent in parents if kind == "aftercorr"]
    whole = [(kind, parent) for kind, parent in parents if kind != "aftercorr"]
    waits_for_stuck = any(parent.stuck for _, parent in whole)
    is_unmet = any(not parent.stuck and _is_unmet(kind, parent) for kind, parent in whole)
    cause = _stage_cause(parents)
    found: dict[int, _Cause | None] = {}
    pending = [s for s in slices if s.state in PENDING_STATES and s.slice_index in own]
    for part in sorted(pending, key=lambda part: own[part.slice_index].number):
        index, key = part.slice_index, part.job
        assert key is not None
        above = _stuck_job_above(own[index], key, stuck_jobs)
        # Slurm keeps a job, also a held one, until one of its dependencies can no longer be met.
        is_removed = is_unmet or (above is None and any(_has_ended_badly(p, index) for p in paired))
        waits = waits_for_stuck or above is not None or any(index in p.stuck for p in paired)
        is_stuck = waits or (part.status == "stranded" and part.wait)
        if part.wait != "unmet" and (is_removed or not is_stuck):
            continue
        found[index] = above
        label = f"`{summary.name}`" + (f" slice {index}" if summary.is_array else "")
        known = _stuck_cause(label, [part]) or above or cause or _element_cause(part, parents)
        stuck_jobs[key] = known or _Cause(f"{label} can never start")
        stuck_jobs.setdefault(key.job, stuck_jobs[key])
    return found


def _stuck_job_above(
    intent: Intent, element: JobKey, stuck_jobs: Mapping[JobKey, _Cause]
) -> _Cause | None:
    """Return why a job or element that this one was submitted to wait for never starts."""
    number = element.job_id.partition("_")[2]
    for kind, keys in (intent.dependencies or {}).items():
        for key in keys:
            awaited = JobKey(key.name, f"{key.job_id}_{number}") if kind == "aftercorr" else key
            if awaited in stuck_jobs:
                return stuck_jobs[awaited]
    return None


def _has_ended_badly(parent: StageStatus, index: int) -> bool:
    """Check whether a slice has failed, or its job will be removed, so that `aftercorr` fails."""
    return index not in parent.stuck and parent.slices[index].status in _UNSUCCESSFUL


def _is_unmet(kind: str, parent: StageStatus) -> bool:
    """Check whether the dependency on all of a stage without stuck jobs can no longer be met.

    Slurm decides that for an array only when all of its elements have ended.
    """
    if kind == "afternotok":
        return parent.status == "completed"
    is_over = not (parent.counts["running"] or parent.counts["waiting"])
    return kind == "afterok" and is_over and parent.status in _UNSUCCESSFUL


def _removal_cause(
    parents: Parents, newest: Mapping[str, Mapping[int, Intent]], since: int
) -> _Cause | None:
    """Return why Slurm removed jobs that never started, if neither stage nor element explains it.

    Where array elements do not correspond, `aftercorr` waits for all of the other stage. And the
    scheduler may have lost a node after the last record was written.

    A command submits parents before children. So a parent's job that is older than the waiting
    stage's previous job, the intent `since`, belongs to an earlier command and explains nothing:
    then a person ended the job.
    """
    for kind, parent in parents:
        if kind not in {"afterok", "aftercorr"}:
            continue
        intents = newest[parent.stage.name]
        recent = {index for index, intent in intents.items() if intent.number > since}
        awaited = [part for part in parent.slices if part.slice_index in recent]
        if any(part.status in {"failed", "cancelled", "stranded"} for part in awaited):
            return _Cause(f"`{parent.stage.name}` has slices that failed or were cancelled")
        ended = {part.state for part in awaited} - LIVING_STATES - {None, "COMPLETED"}
        if parent.status == "completed" and ended:
            return _Cause(NEVER, wait="unmet")
    return None


def _first_stuck(slices: Iterable[SliceStatus]) -> SliceStatus | None:
    """Return a slice whose job is in the queue and is held, or over a limit."""
    stuck = (s for s in slices if s.status == "stranded" and s.wait not in {"", "unmet"})
    return next(stuck, None)


def _stuck_cause(name: str, slices: Iterable[SliceStatus]) -> _Cause | None:
    """Return `` `count` is held (JobHeldUser) `` where a job of `name` does not start."""
    stuck = _first_stuck(slices)
    if stuck is None:
        return None
    is_held = stuck.wait in {"held", "held_by_admin"}
    return _Cause(f"{name} {'is ' if is_held else ''}{stuck.reason}")


# Detection of work that is older than its inputs.
#
# A submit or resume submits each stage after its parents, so the intent of completed work is newer
# than those of its parents. If a command is killed, or a job refused, between a stage and its
# child, that order is broken: the child's work was made from inputs that no longer exist, whatever
# its records show, and `resume` runs it again.


Ages = Mapping[int, int]
"""Number of the newest intent among a slice's own and those of all its ancestors, by slice."""


def outdated_slices(
    after: Mapping[str, str], newest: Mapping[int, Intent], ages: Mapping[str, Ages]
) -> Slices:
    """Return the slices of a stage that were submitted before something that they depend on.

    Args:
        after: kind of dependency by parent.
        newest: the newest intent by slice.
        ages: of the parents; a parent that is left out is ignored.
    """
    above = _above(after, ages, newest)
    return frozenset(i for i, intent in newest.items() if intent.number < above[i])


def ages_of(
    after: Mapping[str, str],
    newest: Mapping[int, Intent],
    ages: Mapping[str, Ages],
    num_slices: int,
) -> Ages:
    """Return the ages of a stage's slices, from those of its parents."""
    above = _above(after, ages, range(num_slices))
    return {i: max(newest[i].number if i in newest else 0, above[i]) for i in range(num_slices)}


def _above(
    after: Mapping[str, str], ages: Mapping[str, Ages], slices: Iterable[int]
) -> dict[int, int]:
    """Return the newest intent among the parents, by slice; `aftercorr` uses the same slice."""
    alike = [ages[name] for name, kind in after.items() if kind == "aftercorr" and name in ages]
    whole = [ages[name] for name, kind in after.items() if kind != "aftercorr" and name in ages]
    of_all = max((number for parent in whole for number in parent.values()), default=0)
    return {i: max([of_all, *(parent.get(i, 0) for parent in alike)]) for i in slices}


def reconcile(run: RunRecords, answer: Answer) -> RunStatus:
    """Return the status of every slice, of each stage and of the run."""
    stages: dict[str, StageStatus] = {}
    ages: dict[str, Ages] = {}
    newest: dict[str, dict[int, Intent]] = {}
    stuck_jobs: dict[JobKey, _Cause] = {}
    is_silent = not answer.knows_the_living
    for summary in run.stages:
        name, after = summary.name, summary.after
        intents = newest[name] = latest_intents(run.intents, name)
        outdated = outdated_slices(after, intents, ages)
        slices = []
        for i in range(summary.num_slices):
            part = slice_status(
                i,
                intents.get(i),
                run.records[name],
                answer,
                is_submitting=run.is_submitting,
                several_partitions="," in summary.partition,
            )
            if part.status == "completed" and i in outdated:
                reason = "older than what it depends on; `resume` runs it again"
                part = _to_be_submitted(i, reason, is_submitting=run.is_submitting)
            slices.append(part)
        parents = [(kind, stages[parent]) for parent, kind in after.items()]
        earlier = {
            i: intent.number
            for intent in run.intents
            if intent.stage == name
            for i in intent.slices
            if intents[i] is not intent
        }
        stuck = _stuck_slices(summary, slices, parents, intents, stuck_jobs)
        stage = _stage_status(
            summary, slices, parents, newest, earlier, stuck=stuck, is_silent=is_silent
        )
        stages[name] = stage
        ages[name] = ages_of(after, {} if stage.is_not_needed else intents, ages, len(slices))
    # Where no source reports which jobs are alive, unknown ones may still be running.
    order: tuple[Status, ...] = ("unknown", *DECIDING_FIRST) if is_silent else DECIDING_FIRST
    words = {stage.status for stage in stages.values() if not stage.is_not_needed}
    return RunStatus(
        status=next((word for word in order if word in words), "completed"),
        stages=tuple(stages.values()),
        problems=answer.problems,
        notes=answer.notes,
        asked_unix_s=answer.asked_unix_s or None,
        knows_the_living=answer.knows_the_living,
        doubts=answer.doubts,
    )


def _stage_status(
    summary: StageSummary,
    slices: Sequence[SliceStatus],
    parents: Parents,
    newest: Mapping[str, Mapping[int, Intent]],
    earlier: Mapping[int, int],
    *,
    stuck: Mapping[int, _Cause | None],
    is_silent: bool,
) -> StageStatus:
    """Return the status of a stage; slices that wait for what cannot happen become stranded.

    So do slices that lost their job by that: Slurm removes jobs that can never start, with
    `--kill-on-invalid-dep=yes`, and without accounting it forgets them after some minutes.

    Args:
        summary: the stage.
        slices: status of each slice, as if no other stage mattered.
        parents: of the stage.
        newest: the newest intent, by stage and slice.
        earlier: number of the intent before the newest, by slice of this stage.
        stuck: stuck slices of this stage, as `_stuck_slices` returns them.
        is_silent: no source reports which jobs are alive.
    """
    cause = _stage_cause(parents)
    # The same for all slices of a job.
    removal_cause = functools.cache(functools.partial(_removal_cause, parents, newest))
    marked = []
    for part in slices:
        has_job = part.job_id is not None
        waits = part.status == "stranded" or (part.status == "waiting" and has_job)
        is_forgotten = part.status == "unknown" and has_job and not is_silent
        may_be_removed = not part.attempt and (part.reason == CANCELLED_ELSEWHERE or is_forgotten)
        cause_of_part = None
        if waits or may_be_removed:
            cause_of_part = cause or _element_cause(part, parents) or stuck.get(part.slice_index)
        if cause_of_part is None and may_be_removed:
            cause_of_part = removal_cause(earlier.get(part.slice_index, 0))
        marked.append(part if cause_of_part is None else cause_of_part.stranded(part))
    counts = Counter(s.status for s in marked)
    order: tuple[Status, ...] = ("running", "failed", "unknown", "cancelled", "stranded", "waiting")
    status: Status = next((word for word in order if counts[word]), "completed")
    if is_silent and counts["unknown"]:
        status = "unknown"  # work that may still run is not over because something else failed
    elif counts["waiting"] and status not in {"running", "waiting"}:
        # Some will start, regardless of the others.
        has_begun = status != "stranded" and (counts["completed"] or counts["failed"])
        status = "running" if has_begun else "waiting"
    shown = _Cause("")
    if status == "stranded":
        if cause is not None:
            shown = cause
        elif _first_stuck(marked) or "aftercorr" in summary.after.values():
            first = next(s for s in marked if s.status == "stranded")
            shown = _element_cause(first, parents) or _Cause(first.reason, first.wait)
    return StageStatus(
        stage=summary,
        status=status,
        slices=tuple(marked),
        reason=shown.reason,
        wait=shown.wait,
        is_not_needed=shown.is_not_needed,
        stuck=frozenset(stuck),
    )
