"""Attempts, their ends and the scheduler's accounting brought together: PURE.

An attempt without a completion record ends where the accounting says so; where
nobody says so, at its last sign of life, and its outcome is `unknown`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_jobs.common.records import AttemptRecord, CompletionRecord, TaskAccounting
from slurm_jobs.report.inputs import RankTiming, ReportInputs, StageInputs
from slurm_jobs.report.model import Bar

REPORT_RUN = "report"
"""`run:` of the stage that makes this report; it is no part of what it reports on."""

_LIVE_STATES = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "CONFIGURING"})
_WAITING_STATES = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESIZING"})
_SLURMS_WORD = {"CANCELLED": "cancelled", "COMPLETED": "unknown"}
"""Of an end without a completion record; any other state is a failure."""
_CLOCK_SKEW_S = 5.0
"""A node's clock may be this far behind the controller's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptFacts:
    """One attempt with everything that is known of it."""

    bar: Bar
    record: AttemptRecord
    completion: CompletionRecord | None
    accounting: TaskAccounting | None
    """The scheduler's row for the start that this attempt belongs to."""


def gather_attempts(inputs: ReportInputs) -> Mapping[str, tuple[AttemptFacts, ...]]:
    """The attempts of every stage, by slice and attempt."""
    rows = _rows_by_attempt(inputs)
    return {stage.name: _stage_attempts(stage, rows, inputs.read_unix_s) for stage in inputs.stages}


def _rows_by_attempt(inputs: ReportInputs) -> dict[tuple[str, int, int], TaskAccounting]:
    """Each row of the accounting goes to the first attempt that began after the row's start.

    A job has several rows if it was requeued, and several attempts to a row if
    the supervisor tried again without one.
    """
    attempts: dict[str, list[AttemptRecord]] = defaultdict(list)
    for stage in inputs.stages:
        for record in stage.attempts:
            attempts[record.job_id].append(record)
    rows: dict[tuple[str, int, int], TaskAccounting] = {}
    for row in inputs.accounting:
        if row.start_unix_s is None:
            continue
        earliest = row.start_unix_s - _CLOCK_SKEW_S
        later = [a for a in attempts.get(row.job_id, ()) if a.started_unix_s >= earliest]
        if later:
            first = min(later, key=lambda a: a.started_unix_s)
            rows[first.stage, first.slice_index, first.attempt] = row
    return rows


def _stage_attempts(
    stage: StageInputs,
    rows: Mapping[tuple[str, int, int], TaskAccounting],
    now_unix_s: float,
) -> tuple[AttemptFacts, ...]:
    completions = {(c.slice_index, c.attempt): c for c in stage.completions}
    last_attempt: dict[int, int] = {}
    for record in stage.attempts:
        last_attempt[record.slice_index] = record.attempt
    facts = []
    for record in stage.attempts:
        key = (record.slice_index, record.attempt)
        row = rows.get((stage.name, *key))
        is_last = last_attempt[record.slice_index] == record.attempt
        own_report = stage.run == REPORT_RUN and is_last
        outcome, reason, end = _how_it_ended(
            record, completions.get(key), row, None if own_report else stage.timings, now_unix_s
        )
        bar = _bar(record, row, outcome, reason, end)
        facts.append(
            AttemptFacts(bar=bar, record=record, completion=completions.get(key), accounting=row)
        )
    return tuple(facts)


def _bar(
    record: AttemptRecord, row: TaskAccounting | None, outcome: str, reason: str, end: float
) -> Bar:
    return Bar(
        stage=record.stage,
        slice_index=record.slice_index,
        attempt=record.attempt,
        job_id=record.job_id,
        node=",".join(record.node_names),
        eligible_unix_s=row.eligible_unix_s if row else None,
        start_unix_s=record.started_unix_s,
        end_unix_s=max(end, record.started_unix_s),
        outcome=outcome,
        reason=reason,
    )


def _how_it_ended(
    record: AttemptRecord,
    completion: CompletionRecord | None,
    row: TaskAccounting | None,
    timings: Sequence[RankTiming] | None,
    now_unix_s: float,
) -> tuple[str, str, float]:
    """Outcome, reason and end; `timings` is None for the stage that writes this report."""
    if completion is not None:
        return completion.outcome, completion.reason, completion.ended_unix_s
    if row is not None and row.state in _LIVE_STATES:
        return "running", "", now_unix_s
    if row is not None and row.end_unix_s is not None and row.state not in _WAITING_STATES:
        outcome = _SLURMS_WORD.get(row.state, "failed")
        return outcome, f"no completion record; {row.source} says {row.state}", row.end_unix_s
    if timings is None:
        return "running", "", now_unix_s
    last_sign = _last_sign_of_life(record, timings)
    return "unknown", "no completion record, and no accounting of its end", last_sign


def _last_sign_of_life(record: AttemptRecord, timings: Sequence[RankTiming]) -> float:
    signs = [record.started_unix_s]
    for timing in timings:
        if (timing.slice_index, timing.attempt) != (record.slice_index, record.attempt):
            continue
        if timing.steps is not None and len(timing.steps.steps):
            last = timing.steps.steps[-1]
            signs.append(float(last["start_unix_s"]) + float(last["step_s"]))
        signs.extend(s["start_unix_s"] + s["duration_s"] for s in timing.spans)
    return max(signs)
