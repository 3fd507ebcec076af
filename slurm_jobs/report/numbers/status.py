"""Status of every stage, with the terms and rules of `status`. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slurm_jobs.common.records import CompletionName, TaskAccounting
from slurm_jobs.reconcile import (
    DECIDING_FIRST,
    NOT_NEEDED,
    SliceStatus,
    StageStatus,
    Status,
    reconcile,
)
from slurm_jobs.report.inputs.records import ReportInputs, StageInputs
from slurm_jobs.report.numbers.attempts import REPORT_RUN, AttemptFacts
from slurm_jobs.run.intents import Intent, latest_intents
from slurm_jobs.run.model import RunMeta, RunRecords, StageRecords, StageSummary
from slurm_jobs.schedulers.protocol import Answer

_ANY_JOB = "any"
"""Token of the substitute intent, and then of all records."""
_NO_WORD = "report"
"""Source of a row for a job without accounting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Status of one stage."""

    status: Status
    reason: str
    counts: Mapping[Status, int]
    """Slices by status."""
    is_open: bool
    """True if a part of it runs, or waits and can start."""


def standings(
    inputs: ReportInputs, attempts: Mapping[str, Sequence[AttemptFacts]]
) -> Mapping[str, Standing]:
    """Return the standing of each stage."""
    run = _records(inputs)
    status = reconcile(run, _answer(inputs, run.intents))
    return {
        stage.name: _standing(stage, status.stage(stage.name), attempts[stage.name])
        for stage in inputs.stages
    }


def overall_status(
    stages: Sequence[tuple[str, Standing]], *, is_silent: bool = False
) -> tuple[Status, str]:
    """Return the run's status and the stage that sets it; `is_silent`: jobs' states are unknown."""
    needed = [(name, s) for name, s in stages if not s.reason.startswith(NOT_NEEDED)]
    order: tuple[Status, ...] = ("unknown", *DECIDING_FIRST) if is_silent else DECIDING_FIRST
    for status in order:
        for name, standing in needed:
            if standing.status == status:
                told = standing.reason not in {"", status}
                reason = f": {standing.reason}" if told else ""
                return status, f"{name} {status}{reason}"
    return "completed", ""


def _records(inputs: ReportInputs) -> RunRecords:
    return RunRecords(
        meta=_meta(inputs.run),
        stages=tuple(_summary(stage) for stage in inputs.stages),
        intents=inputs.intents
        if inputs.intents is not None
        else tuple(_made_up_intent(stage) for stage in inputs.stages),
        records={
            s.name: _stage_records(s, trust_all=inputs.intents is None) for s in inputs.stages
        },
        is_submitting=inputs.is_submitting,
    )


def _meta(run: Mapping[str, Any]) -> RunMeta:
    """Return the fields that `reconcile` requires and ignores."""
    return RunMeta(
        run_id=str(run.get("run_id", "")),
        name=str(run.get("name", "")),
        created_unix_s=float(run["created_unix_s"]),
        submitted_by=str(run.get("submitted_by", "")),
        host=str(run.get("host", "")),
        scheduler=str(run.get("scheduler", "")),
        version=str(run.get("version", "")),
        spec_file=str(run.get("spec_file", "")),
    )


def _summary(stage: StageInputs) -> StageSummary:
    return StageSummary(
        name=stage.name,
        run=stage.run,
        num_slices=stage.num_slices,
        is_array=stage.num_slices > 1,
        retries=0,
        fingerprint="",
        after={} if stage.is_former else stage.after,  # its dependencies may have changed
        partition=str(stage.resources.get("slurm", {}).get("partition", "")),
    )


def _made_up_intent(stage: StageInputs) -> Intent:
    """Return a substitute for an unreadable ledger: the records of any job count."""
    return Intent(
        number=0,
        token=_ANY_JOB,
        stage=stage.name,
        slices=tuple(range(stage.num_slices)),
        is_array=stage.num_slices > 1,
        fingerprint="",
        job_name="",
        time_unix_s=0.0,
    )


def _stage_records(stage: StageInputs, *, trust_all: bool) -> StageRecords:
    """Convert the records for `reconcile`; `trust_all`: those of any job count."""
    attempts: dict[int, tuple[int, ...]] = {}
    for start in stage.attempts:
        attempts[start.slice_index] = (*attempts.get(start.slice_index, ()), start.attempt)
    endings: dict[int, dict[int, CompletionName]] = {}
    for end in stage.completions:
        token = _ANY_JOB if trust_all else end.token
        name = CompletionName(end.slice_index, end.attempt, token, end.outcome)
        endings.setdefault(end.slice_index, {})[end.attempt] = name
    return StageRecords(attempts=attempts, endings=endings)


def _answer(inputs: ReportInputs, intents: Sequence[Intent]) -> Answer:
    """Return the answer for `status`; if the scheduler was not queried, the newest row of each job.

    Without any accounting, what has not started waits.
    """
    if inputs.answer is not None:
        return inputs.answer
    if inputs.accounting:
        return Answer(tasks={row.job_id: row for row in inputs.accounting})
    begun = {(a.stage, a.slice_index) for stage in inputs.stages for a in stage.attempts}
    return Answer(
        tasks={
            job_id: TaskAccounting(job_id=job_id, state="PENDING", source=_NO_WORD)
            for stage in inputs.stages
            for index, intent in latest_intents(intents, stage.name).items()
            if (stage.name, index) not in begun and index not in intent.cancelled_slices
            if (job_id := intent.element_id(index)) is not None
        }
    )


def _standing(stage: StageInputs, found: StageStatus, facts: Sequence[AttemptFacts]) -> Standing:
    last = {fact.bar.slice_index: fact for fact in facts}
    slices = found.slices
    status = found.status
    if stage.run == REPORT_RUN and any(f.bar.outcome == "running" for f in last.values()):
        # It writes this report, so it runs, regardless of the accounting.
        status = "running"
        slices = tuple(
            replace(s, status=status) if s.status == "unknown" else s for s in found.slices
        )
    return Standing(
        status=status,
        reason=found.reason or _reason(stage, status, slices, last),
        counts=replace(found, slices=slices).counts,
        is_open=any(
            s.status == "running" or (s.status == "waiting" and s.source != _NO_WORD)
            for s in slices
        ),
    )


def _reason(
    stage: StageInputs,
    status: Status,
    slices: Sequence[SliceStatus],
    last: Mapping[int, AttemptFacts],
) -> str:
    deciding = next((s for s in slices if s.status == status), None)
    if deciding is None or status in {"completed", "running"}:
        return ""
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
