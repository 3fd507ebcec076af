"""Attempts at the slices of a stage: when and where each ran, how it ended, and why. PURE.

Two sources are combined. The completion record has what asked an attempt to stop, and what it
raised. The accounting has the state in which its job's start ended, which alone distinguishes a
preemption from a cancel. What ended an attempt is a kind; its text is made last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slurm_jobs.base.failure_kinds import FailureKind, shown_kind
from slurm_jobs.formats.records.attempt_records import (
    AFTER_SIGTERM,
    AttemptRecord,
    CompletionRecord,
    StopRequest,
    TaskAccounting,
)
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run.accounted_starts import AttemptKey, began, job_of, join_rows, newest_row
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.schedulers.job_states import LIVING_STATES, PENDING_STATES, RUNNING_STATES
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.slice_status import CANCELLED_ELSEWHERE, unrecorded_text

AttemptEnding = Literal[
    "running",
    "completed",
    "failed",
    "time limit",
    "preempted",
    "requeued",
    "cancelled",
    "stop signal",
    "stopped",
    "node failure",
    "out of memory",
    "superseded",
    "unknown",
]
"""What ended an attempt. `stopped`: it was asked to stop, and no source has by what."""

_BY_STATE: Mapping[str, AttemptEnding] = {
    "TIMEOUT": "time limit",
    "DEADLINE": "time limit",
    "PREEMPTED": "preempted",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "NODE_FAIL": "node failure",
    "BOOT_FAIL": "node failure",
    "OUT_OF_MEMORY": "out of memory",
}
"""Slurm's states that say more than a record can."""
_BY_REQUEST: Mapping[StopRequest | None, AttemptEnding] = {
    "time limit": "time limit",
    "preemption": "preempted",
    "stop signal": "stop signal",
}
_CAUSES: Mapping[AttemptEnding, str] = {
    "preempted": "Slurm gave its nodes to a job of higher priority",
    "requeued": "Slurm put its job back into the queue, as by `scontrol requeue`",
    "cancelled": CANCELLED_ELSEWHERE,
    "stop signal": "it got the stop signal long before its time limit, as by `scancel --signal`",
    "stopped": "it was asked to stop, and no source has by what",
    "node failure": "its node failed, or was taken down",
    "out of memory": "it used more memory than it had requested",
}
_CANCELLED_HERE = "cancelled by `slurm-jobs cancel`, or by a `resume` that replaced its job"


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptEntry:
    """One attempt; None for times and counts that are not known."""

    stage: str
    slice_index: int
    attempt: int
    """0 for a start of a job that died before its supervisor could write a record."""
    job_id: str
    restart: int = 0
    """Number of earlier requeues of its job."""
    node: str
    start_unix_s: float
    end_unix_s: float | None
    """None while it runs, too."""
    ending: AttemptEnding
    state: str
    """Slurm's word for the start of the job; empty if no source has it, or if a later attempt ran
    in the same start."""
    reason: str
    """Why it ended, for people; empty if it completed or runs."""
    failed_rank: int | None = None
    """Rank that failed first, if its record has it."""
    failed_node: str = ""
    """Node of that rank."""
    kind: FailureKind | None = None
    """Kind of its failure, if its record has it and nothing outside ended it."""
    has_stopped: bool = False
    """True if it ended in time when it was asked to stop, and so may have saved its work."""
    requeue_wait_s: float | None = None
    """Wait in the queue since the previous attempt, if that was of the same job."""
    num_steps: int | None = None
    """Steps that it made; None for a stage that records none."""
    startup_again_s: float | None = None
    """Time before its first step, if an earlier attempt had made steps."""
    repeated_s: float | None = None
    """Time for work that a later attempt did again, or has to do again."""

    @property
    def ending_text(self) -> str:
        """Return what ended it, for people: `failed, wrong data`."""
        kind = shown_kind(self.kind)
        return self.ending if kind is None else f"{self.ending}, {kind}"

    @property
    def lost_s(self) -> float | None:
        """Return the time that its end, or that of the previous attempt, has cost."""
        parts = (self.startup_again_s, self.repeated_s)
        known = [part for part in parts if part is not None]
        return sum(known) if known else None


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSources:
    """Everything that is known of the attempts of one stage."""

    stage: str
    run_name: str
    records: Sequence[AttemptRecord]
    completions: Mapping[AttemptKey, CompletionRecord]
    accounting: Sequence[TaskAccounting]
    """Starts of jobs, of any stage and in any order."""
    answer: Answer | None
    """Newest answer of the scheduler; None if it was not asked."""
    intents: Sequence[Intent]


def attempt_history(sources: StageSources) -> tuple[AttemptEntry, ...]:
    """Return the attempts by slice and start, without steps."""
    rows: dict[JobKey, list[TaskAccounting]] = defaultdict(list)
    for row in sorted(filter(began, sources.accounting), key=lambda row: row.start_unix_s or 0.0):
        rows[row.key].append(row)
    joined = join_rows(sources.records, rows, sources.completions, sources.run_name)
    entries = [*_recorded(sources, joined), *_unrecorded(sources, rows, joined)]
    entries.sort(key=lambda entry: (entry.slice_index, entry.start_unix_s))
    history: list[AttemptEntry] = []
    for entry in entries:
        previous = history[-1] if history else None
        wait_s = None
        if (
            previous is not None
            and (previous.slice_index, previous.job_id) == (entry.slice_index, entry.job_id)
            and previous.restart != entry.restart
            and previous.end_unix_s is not None
        ):
            wait_s = max(0.0, entry.start_unix_s - previous.end_unix_s)
        history.append(replace(entry, requeue_wait_s=wait_s))
    return tuple(history)


def _recorded(
    sources: StageSources, joined: Mapping[AttemptKey, TaskAccounting | None]
) -> Iterator[AttemptEntry]:
    cancelled = {i.token: i.cancelled_slices for i in sources.intents if i.cancelled_slices}
    by_start = sorted(sources.records, key=lambda record: (record.started_unix_s, record.attempt))
    last_of_start = {(record.token, record.job_id, record.restart): record for record in by_start}
    last_of_slice = {record.slice_index: record for record in by_start}
    for record in by_start:
        key = (record.slice_index, record.attempt)
        row, completion = joined[key], sources.completions.get(key)
        newest = last_of_slice[record.slice_index]
        has_restarted = newest.token == record.token and newest.restart > record.restart
        if newest is record and sources.answer is not None:
            row = newest_row(job_of(record, sources.run_name), row, sources.answer)
        if row is not None and row.state in PENDING_STATES and row.state != "REQUEUED":
            if sources.answer is not None and sources.answer.asked_unix_s < record.started_unix_s:
                row = replace(row, state="RUNNING")  # it began after the scheduler was queried
            else:
                row, has_restarted = None, True  # it is of the job's next start
        if last_of_start[record.token, record.job_id, record.restart] is not record:
            row = None
        ending = ending_of(completion, row, has_restarted=has_restarted)
        is_ours = record.slice_index in cancelled.get(record.token, ())
        end_unix_s = row.end_unix_s if row is not None else None
        if completion is not None:
            end_unix_s = completion.ended_unix_s
        has_stopped = completion is not None and completion.outcome == "stopped"
        is_lost = ending not in {"running", "completed", "superseded"} and not has_stopped
        yield AttemptEntry(
            stage=record.stage,
            slice_index=record.slice_index,
            attempt=record.attempt,
            job_id=record.job_id,
            restart=record.restart,
            node=",".join(record.node_names),
            start_unix_s=record.started_unix_s,
            end_unix_s=end_unix_s,
            ending=ending,
            state=row.state if row is not None else "",
            reason=_reason(ending, completion, row, is_ours=is_ours),
            failed_rank=None if completion is None else completion.failed_rank,
            failed_node="" if completion is None else completion.failed_node or "",
            kind=completion.kind if completion is not None and ending == "failed" else None,
            has_stopped=has_stopped,
            repeated_s=end_unix_s - record.started_unix_s
            if is_lost and end_unix_s is not None
            else None,
        )


def _unrecorded(
    sources: StageSources,
    rows: Mapping[JobKey, Sequence[TaskAccounting]],
    joined: Mapping[AttemptKey, TaskAccounting | None],
) -> Iterator[AttemptEntry]:
    """Yield the starts whose supervisor never wrote a record."""
    with_record = {id(row) for row in joined.values()}
    for intent in sources.intents:
        if intent.stage != sources.stage:
            continue
        elements = {intent.element(index): index for index in reversed(intent.slices)}
        for element, index in elements.items():
            starts = rows.get(element, ()) if element is not None else ()
            for restart, row in enumerate(starts):
                if id(row) in with_record or row.start_unix_s is None:
                    continue
                ending = ending_of(None, row, has_restarted=False)
                reason = _reason(ending, None, row, is_ours=index in intent.cancelled_slices)
                if ending == "failed":
                    reason = f"{row.end_text} before its supervisor started; see its log"
                is_over = ending != "running" and row.end_unix_s is not None
                yield AttemptEntry(
                    stage=sources.stage,
                    slice_index=index,
                    attempt=0,
                    job_id=row.job_id,
                    restart=restart,
                    node=row.node_list,
                    start_unix_s=row.start_unix_s,
                    end_unix_s=row.end_unix_s,
                    ending=ending,
                    state=row.state,
                    reason=reason,
                    repeated_s=(row.end_unix_s or 0.0) - row.start_unix_s if is_over else None,
                )


def ending_of(
    completion: CompletionRecord | None,
    row: TaskAccounting | None,
    *,
    has_restarted: bool,
) -> AttemptEnding:
    """Return what ended an attempt.

    Args:
        completion: its completion record.
        row: accounting of the job's start in which it ran; None if unknown, or if a later attempt
            ran in the same start.
        has_restarted: its job has another start, or waits for one.
    """
    if completion is not None and completion.outcome in {"completed", "superseded"}:
        return "completed" if completion.outcome == "completed" else "superseded"
    state = row.state if row is not None else ""
    if state in _BY_STATE:
        return _BY_STATE[state]
    if completion is None:
        return _without_record(state, has_restarted=has_restarted)
    is_requeued = state == "REQUEUED"
    if completion.outcome == "failed" and not is_requeued:
        return "failed"
    request = completion.stop_request
    if request is None and completion.outcome == "stopped":  # a rank alone was asked
        return "stopped"
    if request in _BY_REQUEST:
        return _BY_REQUEST[request]
    return "requeued" if is_requeued or has_restarted else "stopped"


def _without_record(state: str, *, has_restarted: bool) -> AttemptEnding:
    if state in RUNNING_STATES:
        return "running"
    if has_restarted or state == "REQUEUED":
        return "requeued"
    return "unknown" if state in {"", "COMPLETED"} or state in LIVING_STATES else "failed"


def _reason(
    ending: AttemptEnding,
    completion: CompletionRecord | None,
    row: TaskAccounting | None,
    *,
    is_ours: bool,
) -> str:
    """Return why it ended, with what its record adds; `is_ours`: slurm-jobs took its slice away."""
    detail = completion.full_reason.removeprefix(AFTER_SIGTERM) if completion is not None else ""
    if ending in {"completed", "failed", "superseded"} and detail:
        return detail
    local = row.reason if row is not None and row.source == "local" else ""
    if ending == "failed" and row is not None:
        return local or unrecorded_text(row)
    if ending == "unknown":
        said = f"{row.source} says {row.state}, but " if row is not None else ""
        return f"{said}it left no completion record"
    has_stopped = completion is not None and completion.outcome == "stopped"
    cause = _CAUSES.get(ending, "")
    if ending == "time limit":
        limit_s = row.time_limit_s if row is not None else None
        limit = f" of {limit_s / 60:g} min" if limit_s else ""
        cause = "its time limit came near" if has_stopped else f"its time limit{limit} was over"
    elif ending == "cancelled" and is_ours:
        cause = _CANCELLED_HERE
    elif ending in {"out of memory", "node failure"} and local:
        cause = local
    if not cause:
        return ""
    if has_stopped:
        return f"{cause}; it stopped in time"
    return f"{cause}; {detail or 'it was killed before it could record its end'}"
