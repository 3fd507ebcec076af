"""Status of every stage, with the terms and rules of `status`. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.report.attempts.gathered_attempts import REPORT_RUN, AttemptFacts
from slurm_jobs.report.inputs.run_inputs import ReportInputs, StageInputs
from slurm_jobs.run_folder.ledger import Intent, latest_intents
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.reconcile import reconcile
from slurm_jobs.status.run_status import DECIDING_FIRST
from slurm_jobs.status.slice_status import SliceStatus, Status

_STATUS_OF_OUTCOME: Mapping[str, Status] = {
    "completed": "completed",
    "failed": "failed",
    "stopped": "unknown",
    "superseded": "unknown",
}
"""Status of a slice by the outcome of its newest attempt, if nothing else is known of it."""
_NO_WORD = "report"
"""Source of a row for a job without accounting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Status of one stage."""

    status: Status
    reason: str
    slices: Mapping[Status, Sequence[int]]
    """Numbers of the slices by status, ascending."""
    is_open: bool
    """True if a part of it runs, or waits and can start."""
    is_not_needed: bool = False
    """True if it handles an event that did not happen."""


def standings(
    inputs: ReportInputs, attempts: Mapping[str, Sequence[AttemptFacts]]
) -> Mapping[str, Standing]:
    """Return the standing of each stage."""
    if inputs.records is None:
        return {stage.name: _by_endings(stage) for stage in inputs.stages}
    run_status = reconcile(inputs.records, _answer(inputs, inputs.records.intents))
    by_name = {stage.stage.name: stage for stage in run_status.stages}
    standing: dict[str, Standing] = {}
    for stage in inputs.stages:
        reconciled = by_name.get(stage.name)
        if reconciled is None:  # a submit was killed between the spec and the plan
            standing[stage.name] = _by_endings(stage)
            continue
        status, slices = reconciled.status, reconciled.slices
        last = {fact.bar.slice_index: fact for fact in attempts[stage.name]}
        if stage.run == REPORT_RUN and any(f.bar.outcome == "running" for f in last.values()):
            # It writes this report, so it runs, regardless of the accounting.
            status = "running"
            slices = tuple(
                replace(s, status=status) if s.status == "unknown" else s for s in slices
            )
        numbers: dict[Status, list[int]] = {}
        is_open = False
        for each in sorted(slices, key=lambda s: s.slice_index):
            numbers.setdefault(each.status, []).append(each.slice_index)
            can_start = each.status == "waiting" and each.source != _NO_WORD
            is_open = is_open or can_start or each.status == "running"
        standing[stage.name] = Standing(
            status=status,
            reason=reconciled.reason or _reason(stage, status, slices, last),
            slices=numbers,
            is_open=is_open,
            is_not_needed=reconciled.is_not_needed,
        )
    return standing


@dataclass(frozen=True, kw_only=True, slots=True)
class OverallStatus:
    """Status of a run, and the stage that sets it."""

    status: Status
    head: str = ""
    """The stage and its status, such as `2 of 3 stages failed; train failed`."""
    reason: str = ""
    """Reason of that stage's status."""


def overall_status(
    stages: Sequence[tuple[str, Standing]], *, is_silent: bool = False
) -> OverallStatus:
    """Return the run's status; `is_silent`: jobs' states are unknown."""
    needed = [(name, s) for name, s in stages if not s.is_not_needed]
    order: tuple[Status, ...] = ("unknown", *DECIDING_FIRST) if is_silent else DECIDING_FIRST
    for status in order:
        alike = [(name, standing) for name, standing in needed if standing.status == status]
        if alike:
            name, standing = alike[0]
            is_one_of_many = status == "failed" and len(alike) > 1
            count = f"{len(alike)} of {len(needed)} stages failed; " if is_one_of_many else ""
            head = f"{count}{name} {status}"
            return OverallStatus(status=status, head=head, reason=standing.reason)
    return OverallStatus(status="completed")


def _by_endings(stage: StageInputs) -> Standing:
    """Return the standing of a stage of which only attempts and their endings are known."""
    newest: dict[int, Status] = dict.fromkeys(range(stage.num_slices), "unknown")
    for ending in stage.completions:
        if ending.slice_index in newest:
            newest[ending.slice_index] = _STATUS_OF_OUTCOME[ending.outcome]
    numbers: dict[Status, list[int]] = {}
    for index, status in newest.items():
        numbers.setdefault(status, []).append(index)
    status = next(word for word in ("unknown", "failed", "completed") if word in numbers)
    reason = "" if status == "completed" else "the records of its jobs cannot be read"
    return Standing(status=status, reason=reason, slices=numbers, is_open=False)


def _answer(inputs: ReportInputs, intents: Sequence[Intent]) -> Answer:
    """Return the answer for `status`; if the scheduler was not queried, the newest row of each job.

    Without any accounting, what has not started waits.
    """
    if inputs.answer is not None:
        return inputs.answer
    if inputs.accounting:
        return Answer(tasks={row.key: row for row in inputs.accounting})
    tasks: dict[JobKey, TaskAccounting] = {}
    for stage in inputs.stages:
        begun = {attempt.slice_index for attempt in stage.attempts}
        for index, intent in latest_intents(intents, stage.name).items():
            job = intent.element(index)
            if job is not None and index not in begun and index not in intent.cancelled_slices:
                tasks[job] = TaskAccounting(
                    job_id=job.job_id, job_name=job.name, state="PENDING", source=_NO_WORD
                )
    return Answer(tasks=tasks)


def _reason(
    stage: StageInputs,
    status: Status,
    slices: Sequence[SliceStatus],
    last: Mapping[int, AttemptFacts],
) -> str:
    deciding = next((s for s in slices if s.status == status), None)
    if deciding is None or status == "completed":
        return ""
    if status == "running":
        num_failed = sum(s.status == "failed" for s in slices)
        return f"{num_failed:,} of {stage.num_slices:,} slices failed" if num_failed else ""
    if status == "waiting":
        num_waiting = sum(s.status == status for s in slices)
        why = f" ({deciding.reason})" if deciding.reason else ""
        return f"{num_waiting} of {stage.num_slices} not started{why}"
    fact = last.get(deciding.slice_index)
    if fact is not None and fact.bar.attempt == deciding.attempt:
        if status == "unknown" and fact.bar.outcome == "stopped":
            return "asked to stop, it saved; no accounting says whether it was requeued"
        if fact.bar.reason and (deciding.ending or fact.bar.outcome in {"failed", "unknown"}):
            return fact.bar.reason
    return deciding.reason
