"""Status of a run: (plan, ledger, records, scheduler) -> status of each slice. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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
    Wait,
    wait_of,
)
from slurm_jobs.shared.records import CompletionName, Outcome, TaskAccounting

# Status of one slice: (intent, records, scheduler's answer) -> status with source.
#
# Only a completion record proves that work is done. The scheduler's word explains a failure; it
# never proves a success. Unknown is never success, and never failure.


Status = Literal["waiting", "running", "completed", "failed", "cancelled", "stranded", "unknown"]

RUNNER_ENDED = "the local runner has ended; `resume` starts one"
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
    endings = (
        ending
        for ending in records.endings.get(index, {}).values()
        if ending.token == intent.token and ending.outcome == outcome
    )
    return max(endings, default=None)


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
        return _stopped_and_left(
            _adjust_for_shared_task(known, intent, records, failed), intent, records
        )
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
        return replace(known, status="stranded", reason=RUNNER_ENDED)
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


def _adjust_for_shared_task(
    status: SliceStatus, intent: Intent, records: StageRecords, failed: CompletionName | None
) -> SliceStatus:
    """Adjust a status where one array task processes several slices, one at a time."""
    of_task = intent.slices_beside(status.slice_index) if intent.slices_per_task else ()
    others = [i for i in of_task if i != status.slice_index]
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
    unreachable = ", ".join(problem.partition(":")[0] for problem in answer.problems)
    lags = answer.lagging.get(status.job_id or "")
    if lags is not None:
        reason = f"squeue knows it no longer, and sacct lags behind: it still says {lags}"
    elif unreachable:
        reason = f"no source knows it, and {unreachable} could not be asked"
    else:
        reason = "the scheduler does not know it"
    if status.attempt:
        reason = f"it started, has no completion record, and {reason}"
        return replace(status, source="record", reason=reason)
    if lags is None and not unreachable:
        reason += f" ({CANCELLED_UNSEEN}); `resume` runs it"
    return replace(status, reason=reason)


# Reasons why work can never start, named by the stage that caused it.


NOT_NEEDED = "not needed"
_WENT_WRONG: frozenset[Status] = frozenset({"failed", "cancelled", "stranded"})


@dataclass(frozen=True, kw_only=True, slots=True)
class AwaitedJobs:
    """Jobs of the parent stages that a slice's newest job can have waited for.

    A command submits parents before children. So a parent's job that is older than the slice's
    previous job belongs to an earlier command, and does not explain why the newest job is gone.
    """

    numbers: Mapping[str, Mapping[int, int]]
    """Number of the newest intent, by stage and slice."""
    earlier: Mapping[int, int]
    """Number of the intent before the newest, by slice of the waiting stage."""

    def of_parent(self, parent: StageStatus, since: int) -> list[SliceStatus]:
        """Return the parent's slices whose newest job was submitted after the intent `since`."""
        numbers = self.numbers[parent.stage.name]
        return [part for part in parent.slices if numbers.get(part.slice_index, 0) > since]


def stage_cause(after: Mapping[str, str], parents: Mapping[str, StageStatus]) -> str | None:
    """Return why a stage can never start, named by the stage that caused it.

    The scheduler removes a parent's job that can never start, which satisfies `afterany` and
    `afternotok`. If the job stays in the queue (`is_stuck`), they are not satisfied.

    Args:
        after: kind of dependency by parent.
        parents: all stages before this one.
    """
    for parent, kind in after.items():
        above = parents[parent]
        if kind == "afternotok" and above.status == "completed":
            return f"{NOT_NEEDED}: `{parent}` completed"
        is_met = kind != "afterok" and (above.is_not_needed or not above.is_stuck)
        if kind == "aftercorr" or is_met:
            continue
        waits = above.counts["running"] or above.counts["waiting"]
        if above.status == "stranded" or (above.is_stuck and not waits):
            return (
                _stuck_cause(f"`{parent}`", above.slices)
                or above.reason
                or f"`{parent}` can never start"
            )
        if kind != "afterok":
            continue
        if above.status in {"failed", "cancelled"}:
            return f"`{parent}` {above.status}"
        if above.counts["failed"] or above.counts["cancelled"]:
            return f"`{parent}` has slices that failed or were cancelled"
    return None


def with_causes(
    slices: tuple[SliceStatus, ...],
    after: Mapping[str, str],
    parents: Mapping[str, StageStatus],
    cause: str | None,
    jobs: AwaitedJobs,
    *,
    is_silent: bool,
) -> tuple[SliceStatus, ...]:
    """Mark slices as stranded that wait for what cannot happen, or that lost their job by that.

    Args:
        slices: slices of a stage.
        after: kind of dependency by parent.
        parents: all stages before this one.
        cause: cause for the whole stage.
        jobs: jobs of the parents that can explain removed jobs.
        is_silent: no source reports which jobs are alive.
    """
    lost: dict[int, str | None] = {}  # the same for all slices of a job

    def why(part: SliceStatus) -> str | None:
        may_be_removed = _may_be_removed(part, is_silent=is_silent)
        waits = part.status == "stranded" or (part.status == "waiting" and part.job_id is not None)
        if not (waits or may_be_removed):
            return None
        cause_of_element = cause or _element_cause(part, after, parents)
        if cause_of_element is not None or not may_be_removed:
            return cause_of_element
        since = jobs.earlier.get(part.slice_index, 0)
        if since not in lost:
            lost[since] = _lost_cause(after, parents, jobs, since)
        return lost[since]

    causes = [(part, why(part)) for part in slices]
    return tuple(
        part if reason is None else replace(part, status="stranded", reason=reason, wait="")
        for part, reason in causes
    )


def _may_be_removed(part: SliceStatus, *, is_silent: bool) -> bool:
    """Check whether a job may have ended because it could never start.

    Slurm removes such jobs with `--kill-on-invalid-dep=yes`; without accounting it forgets them
    after some minutes.
    """
    is_forgotten = part.status == "unknown" and part.job_id is not None and not is_silent
    return not part.attempt and (part.reason == CANCELLED_ELSEWHERE or is_forgotten)


def _element_cause(
    part: SliceStatus, after: Mapping[str, str], parents: Mapping[str, StageStatus]
) -> str | None:
    """Return why this slice alone can never start: its element in a parent stage (`aftercorr`)."""
    for parent, kind in after.items():
        if kind != "aftercorr":
            continue
        above = parents[parent].slices[part.slice_index]
        if above.status == "stranded":
            return _stuck_cause(f"`{parent}` slice {above.slice_index}", [above]) or above.reason
        if above.status in {"failed", "cancelled"}:
            return f"`{parent}` slice {above.slice_index} {above.status}"
    return None


def is_stuck_itself(slices: Iterable[SliceStatus]) -> bool:
    """Check whether a job is in the queue that is held, or over a limit."""
    return any(s.status == "stranded" and s.wait and s.reason != NEVER for s in slices)


def _stuck_cause(parent: str, slices: Iterable[SliceStatus]) -> str | None:
    """Return `` `count` is held (JobHeldUser) `` where a job of the parent's does not start."""
    stuck = [s for s in slices if is_stuck_itself([s])]
    if not stuck:
        return None
    is_held = stuck[0].wait in {"held", "held_by_admin"}
    return f"{parent} {'is ' if is_held else ''}{stuck[0].reason}"


def _lost_cause(
    after: Mapping[str, str], parents: Mapping[str, StageStatus], jobs: AwaitedJobs, since: int
) -> str | None:
    """Return why Slurm ended jobs that never started, if neither stage nor element explains it.

    Where array elements do not correspond, `aftercorr` waits for all of the other stage. And the
    scheduler may have lost a node after the last record was written. A parent's job that no such
    job waited for explains nothing: then a person ended the job.
    """
    for parent, kind in after.items():
        if kind not in {"afterok", "aftercorr"}:
            continue
        awaited = jobs.of_parent(parents[parent], since)
        if any(part.status in _WENT_WRONG for part in awaited):
            return f"`{parent}` has slices that failed or were cancelled"
        ended = {part.state for part in awaited} - LIVING_STATES - {None, "COMPLETED"}
        if parents[parent].status == "completed" and ended:
            return NEVER
    return None


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


# Reconciliation: (stages, ledger, records, scheduler's answer) -> status with source.


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
        numbers[name] = {index: intent.number for index, intent in newest.items()}
        jobs = AwaitedJobs(numbers=numbers, earlier=_earlier_numbers(run.intents, name, newest))
        silent = not answer.knows_the_living
        stages[name] = _stage_status(summary, slices, stages, jobs, is_silent=silent)
        intent = {} if stages[name].is_not_needed else newest
        ages[name] = ages_of(after, intent, ages, summary.num_slices)
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
    shows_reason = cause or "aftercorr" in summary.after.values() or is_stuck_itself(slices)
    reason = why if status == "stranded" and shows_reason else ""
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
