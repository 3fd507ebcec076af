"""Attempts, their ends and the scheduler's accounting combined. PURE.

Each row of the accounting is one start of a job or array task. Attempts are joined to the start in
which they ran. A start has several if the supervisor retried in place or one element processes
several slices. It has none if it died before its supervisor (the node failed, a set-up line
failed); such a start becomes an attempt without a record.

An attempt without a completion record ends where the accounting says. Without accounting, it ends
at its last sign of life, and its outcome is `unknown`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_jobs.base import units
from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionRecord,
    TaskAccounting,
)
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.report.inputs.run_inputs import RankTiming, ReportInputs, StageInputs
from slurm_jobs.report.steps.attempt_steps import CLOCK_TOLERANCE
from slurm_jobs.report.values.stage_model import Bar
from slurm_jobs.run.accounted_starts import CLOCK_SKEW_S, began, job_of, join_rows, newest_row
from slurm_jobs.schedulers.job_states import LIVING_STATES, RUNNING_STATES


def why_accounting_ends_it(
    begun_unix_s: float, completion: CompletionRecord, row: TaskAccounting
) -> str | None:
    """Return why a start's last attempt ends with its row; None if its own end counts.

    Attempts are timed by their node's clock, starts by the controller's, which knows the length of
    each. If the node's clock was set while the job ran, its attempts seem too long or too short.
    Set-up lines run before the supervisor, so attempts may be shorter than their start. That is a
    contradiction only if the start also ended later than they.

    Args:
        begun_unix_s: begin of the start's first attempt, by its node's clock.
        completion: record of the last attempt.
        row: accounting of the start.
    """
    if row.start_unix_s is None or row.end_unix_s is None:
        return None
    elapsed_s = row.end_unix_s - row.start_unix_s
    slack_s = CLOCK_SKEW_S + CLOCK_TOLERANCE * elapsed_s
    own_s = completion.ended_unix_s - begun_unix_s
    is_too_long = own_s > elapsed_s + slack_s
    ends_early = completion.ended_unix_s < row.end_unix_s - slack_s
    is_too_short = ends_early and own_s < elapsed_s - slack_s
    if not is_too_long and not is_too_short:
        return None
    took = units.seconds(own_s) if own_s > 0 else "less than no time"
    return (
        f"by its node's clock it took {took}, by the accounting {units.seconds(elapsed_s)}: the "
        "clock was set while it ran, or the job continued after it; its end is the accounting's"
    )


REPORT_RUN = "report"
"""`run:` of the stage that makes this report; the report leaves it out."""

_SLURMS_WORD = {"CANCELLED": "cancelled", "COMPLETED": "unknown"}
"""Outcome of an end without a completion record; any other state is a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptFacts:
    """One attempt with all facts about it."""

    bar: Bar
    """Its attempt is 0 without a record."""
    job: JobKey
    """Job or array element of the start."""
    record: AttemptRecord | None
    """None if the start died before its supervisor could write one."""
    completion: CompletionRecord | None
    accounting: TaskAccounting | None
    """Scheduler's row for the start, only at the start's first attempt: over all attempts of a
    stage each row occurs once."""
    clock_note: str = ""
    """Reason why its end comes from the accounting, although it left a completion record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Element:
    """Stage and slices of a job id, as squeue shows it."""

    stage: str
    slices: tuple[int, ...]


def gather_attempts(inputs: ReportInputs) -> Mapping[str, tuple[AttemptFacts, ...]]:
    """Return the attempts of every stage by slice and start, including those without a record."""
    rows: dict[JobKey, list[TaskAccounting]] = defaultdict(list)
    for row in sorted(filter(began, inputs.accounting), key=lambda r: r.start_unix_s or 0.0):
        rows[row.key].append(row)
    attempts = {stage.name: _stage_attempts(stage, rows, inputs) for stage in inputs.stages}
    joined = {id(f.accounting) for facts in attempts.values() for f in facts}
    elements = elements_of(inputs)
    for row in (row for job_rows in rows.values() for row in job_rows):
        element = elements.get(row.key)
        if id(row) in joined or element is None or element.stage not in attempts:
            continue
        # The supervisor of this start never wrote a record.
        assert row.start_unix_s is not None
        is_over = row.end_unix_s is not None or row.state not in LIVING_STATES
        bar = Bar(
            stage=element.stage,
            slice_index=min(element.slices),
            attempt=0,
            job_id=row.job_id,
            node=row.node_list,
            eligible_unix_s=row.eligible_unix_s,
            start_unix_s=row.start_unix_s,
            end_unix_s=row.end_unix_s if row.end_unix_s is not None else inputs.read_unix_s,
            outcome=_SLURMS_WORD.get(row.state, "failed") if is_over else "running",
            reason=f"{row.state} before its supervisor started; see its log" if is_over else "",
            job_start_unix_s=row.start_unix_s,
        )
        attempts[element.stage].append(
            AttemptFacts(bar=bar, job=row.key, record=None, completion=None, accounting=row)
        )
    return {
        name: tuple(sorted(facts, key=lambda f: (f.bar.slice_index, f.bar.start_unix_s)))
        for name, facts in attempts.items()
    }


def begun_jobs(inputs: ReportInputs) -> dict[str, float]:
    """Return the begin of each running start by job id, which no two running jobs share."""
    rows = [*inputs.accounting, *(inputs.answer.tasks.values() if inputs.answer else ())]
    return {
        row.job_id: row.start_unix_s
        for row in rows
        if row.state in RUNNING_STATES and row.start_unix_s is not None
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedStarts:
    """Starts of jobs of which an attempt left a record."""

    num: int
    without_row: tuple[str, ...]
    """Job ids of the starts that the accounting lacks."""


def recorded_starts(facts: Iterable[AttemptFacts]) -> RecordedStarts:
    """Compare the starts with a record to the scheduler's accounting."""
    has_row: dict[tuple[JobKey, int], bool] = {}
    for fact in facts:
        if fact.record is not None:
            start = (fact.job, fact.record.restart)
            has_row[start] = has_row.get(start, False) or fact.accounting is not None
    lacking = tuple(job.job_id for (job, _), is_known in has_row.items() if not is_known)
    return RecordedStarts(num=len(has_row), without_row=lacking)


def elements_of(inputs: ReportInputs) -> dict[JobKey, Element]:
    """Return the slices of each job, from the ledger or, if unreadable, from the attempts."""
    slices: dict[JobKey, tuple[str, list[int]]] = {}
    for stage in inputs.stages:
        for record in stage.attempts:
            job = job_of(record, inputs.run["name"])
            slices.setdefault(job, (stage.name, []))[1].append(record.slice_index)
    for intent in inputs.intents or ():
        submitted: dict[JobKey, tuple[str, list[int]]] = {}
        for index in intent.slices:
            element = intent.element(index)
            if element is not None:
                submitted.setdefault(element, (intent.stage, []))[1].append(index)
        slices.update(submitted)
    return {
        job: Element(stage=stage, slices=tuple(indexes)) for job, (stage, indexes) in slices.items()
    }


def _stage_attempts(
    stage: StageInputs, rows: Mapping[JobKey, Sequence[TaskAccounting]], inputs: ReportInputs
) -> list[AttemptFacts]:
    completions = {(c.slice_index, c.attempt): c for c in stage.completions}
    answer, run_name = inputs.answer, inputs.run["name"]
    joined = join_rows(stage.attempts, rows, completions, run_name)
    last_attempts = {record.slice_index: record.attempt for record in stage.attempts}
    facts: list[AttemptFacts] = []
    places_by_row: dict[int, list[int]] = defaultdict(list)  # places in `facts`, by `id` of the row
    for record in sorted(stage.attempts, key=lambda a: a.started_unix_s):
        key = (record.slice_index, record.attempt)
        row, completion = joined[key], completions.get(key)
        current_row = row
        timings: Sequence[RankTiming] | None = stage.timings
        if record.attempt == last_attempts[record.slice_index]:
            job = job_of(record, run_name)
            current_row = row if answer is None else newest_row(job, row, answer)
            if stage.run == REPORT_RUN and not stage.is_former:
                timings = None
        outcome, reason, end = _ending(record, completion, current_row, timings, inputs.read_unix_s)
        first_row = None
        if row is not None:
            if id(row) not in places_by_row:
                first_row = row
            places_by_row[id(row)].append(len(facts))
        bar = Bar(
            stage=record.stage,
            slice_index=record.slice_index,
            attempt=record.attempt,
            job_id=record.job_id,
            node=",".join(record.node_names),
            eligible_unix_s=first_row.eligible_unix_s if first_row else None,
            start_unix_s=record.started_unix_s,
            end_unix_s=max(end, record.started_unix_s),
            outcome=outcome,
            reason=reason,
            job_start_unix_s=first_row.start_unix_s if first_row else None,
        )
        facts.append(
            AttemptFacts(
                bar=bar,
                job=job_of(record, run_name),
                record=record,
                completion=completion,
                accounting=first_row,
            )
        )
    for places in places_by_row.values():
        first, last = facts[places[0]], facts[places[-1]]
        assert first.accounting is not None
        facts[places[-1]] = _with_accounted_end(last, first.bar.start_unix_s, first.accounting)
    return facts


def _with_accounted_end(
    last: AttemptFacts, begun_unix_s: float, row: TaskAccounting
) -> AttemptFacts:
    """Return the last attempt of a start with the end of its row if its own contradicts that.

    Args:
        last: the attempt.
        begun_unix_s: begin of the start's first attempt.
        row: accounting of the start.
    """
    if row.end_unix_s is None or last.completion is None:
        return last
    why = why_accounting_ends_it(begun_unix_s, last.completion, row)
    if why is None:
        return last
    bar = last.bar
    name = units.attempt_name(bar.stage, bar.slice_index, bar.attempt, bar.job_id)
    end_unix_s = max(row.end_unix_s, bar.start_unix_s)
    return replace(last, bar=replace(bar, end_unix_s=end_unix_s), clock_note=f"{name}: {why}")


def _ending(
    record: AttemptRecord,
    completion: CompletionRecord | None,
    row: TaskAccounting | None,
    timings: Sequence[RankTiming] | None,
    now_unix_s: float,
) -> tuple[str, str, float]:
    """Return outcome, reason and end; `row` is the accounting of the attempt's start.

    `timings` is None for the stage that writes this report.
    """
    if completion is not None:
        end = completion.ended_unix_s
        if row is not None and _was_cancelled(completion, row):
            return "cancelled", f"{row.source} says CANCELLED. {completion.reason}", end
        return completion.outcome, completion.reason, end
    if row is not None and row.state in RUNNING_STATES:
        return "running", "", now_unix_s
    if row is not None and row.end_unix_s is not None and row.state != "PENDING":
        outcome = _SLURMS_WORD.get(row.state, "failed")
        return outcome, f"no completion record; {row.source} says {row.state}", row.end_unix_s
    if timings is None:
        return "running", "", now_unix_s
    signs_of_life = [record.started_unix_s]
    for timing in timings:
        if (timing.slice_index, timing.attempt) != (record.slice_index, record.attempt):
            continue
        if timing.steps is not None and len(timing.steps.steps):
            last = timing.steps.steps[-1]
            signs_of_life.append(float(last["start_unix_s"]) + float(last["step_s"]))
        signs_of_life.extend(s["start_unix_s"] + s["duration_s"] for s in timing.spans)
    return "unknown", "no completion record, and no accounting of its end", max(signs_of_life)


def _was_cancelled(completion: CompletionRecord, row: TaskAccounting) -> bool:
    """Check whether an attempt failed because its job was cancelled.

    That is so if its record says that something asked it to stop, or if the end of the job is not
    known. Otherwise nothing asked it, or an older record does not say: then the clocks decide. An
    attempt that failed long before the end of its job has another cause: the job was cancelled
    while it waited for its next attempt, or worked on another slice.
    """
    if completion.outcome != "failed" or row.state != "CANCELLED":
        return False
    if completion.stop_request is not None or row.end_unix_s is None:
        return True
    return completion.ended_unix_s >= row.end_unix_s - CLOCK_SKEW_S
