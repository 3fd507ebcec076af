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

from slurm_jobs.common.records import AttemptRecord, CompletionRecord, TaskAccounting
from slurm_jobs.report import words
from slurm_jobs.report.inputs.records import RankTiming, ReportInputs, StageInputs
from slurm_jobs.report.model.run import Bar
from slurm_jobs.report.numbers.clocks import why_end_is_the_rows
from slurm_jobs.report.numbers.joining import Key, join_rows
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.schedulers.states import LIVING_STATES, RUNNING_STATES

REPORT_RUN = "report"
"""`run:` of the stage that makes this report; the report leaves it out."""

_SLURMS_WORD = {"CANCELLED": "cancelled", "COMPLETED": "unknown"}
"""Outcome of an end without a completion record; any other state is a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptFacts:
    """One attempt with all facts about it."""

    bar: Bar
    """Its attempt is 0 without a record."""
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
    rows: dict[str, list[TaskAccounting]] = defaultdict(list)
    for row in sorted(filter(began, inputs.accounting), key=lambda r: r.start_unix_s or 0.0):
        rows[row.job_id].append(row)
    found = {
        stage.name: _stage_attempts(stage, rows, inputs.answer, inputs.read_unix_s)
        for stage in inputs.stages
    }
    joined = {id(f.accounting) for facts in found.values() for f in facts}
    elements = elements_of(inputs)
    for job_rows in rows.values():
        for row in job_rows:
            element = elements.get(row.job_id)
            if id(row) not in joined and element is not None and element.stage in found:
                found[element.stage].append(_without_record(row, element, inputs.read_unix_s))
    return {
        name: tuple(sorted(facts, key=lambda f: (f.bar.slice_index, f.bar.start_unix_s)))
        for name, facts in found.items()
    }


def began(row: TaskAccounting) -> bool:
    """Check whether the row is a start: a job cancelled in the queue got no node and no time."""
    never = not row.node_list and row.end_unix_s == row.start_unix_s
    return row.start_unix_s is not None and not never


def begun_jobs(inputs: ReportInputs) -> dict[str, float]:
    """Return the begin of each running start by job id, from the scheduler."""
    told = [*inputs.accounting, *(inputs.answer.tasks.values() if inputs.answer else ())]
    return {
        row.job_id: row.start_unix_s
        for row in told
        if row.state in RUNNING_STATES and row.start_unix_s is not None
    }


def starts_without_row(facts: Iterable[AttemptFacts]) -> tuple[tuple[str, ...], int]:
    """Return job ids of the starts with a record but no accounting, and the number of starts."""
    known: dict[tuple[str, int], bool] = {}
    for fact in facts:
        if fact.record is not None:
            start = (fact.record.job_id, fact.record.restart)
            known[start] = known.get(start, False) or fact.accounting is not None
    return tuple(job_id for (job_id, _), is_known in known.items() if not is_known), len(known)


def elements_of(inputs: ReportInputs) -> dict[str, Element]:
    """Return the element of each job id, from the ledger or, if unreadable, from the attempts."""
    slices: dict[str, tuple[str, list[int]]] = {}
    for stage in inputs.stages:
        for record in stage.attempts:
            slices.setdefault(record.job_id, (stage.name, []))[1].append(record.slice_index)
    for intent in inputs.intents or ():
        submitted: dict[str, tuple[str, list[int]]] = {}
        for index in intent.slices if intent.job_id is not None else ():
            element_id = intent.element_id(index) or ""
            submitted.setdefault(element_id, (intent.stage, []))[1].append(index)
        slices.update(submitted)
    return {
        job_id: Element(stage=stage, slices=tuple(found))
        for job_id, (stage, found) in slices.items()
    }


def _without_record(row: TaskAccounting, element: Element, now_unix_s: float) -> AttemptFacts:
    """Return the attempt of a start whose supervisor never wrote a record."""
    assert row.start_unix_s is not None
    is_over = row.end_unix_s is not None or row.state not in LIVING_STATES
    outcome = _SLURMS_WORD.get(row.state, "failed") if is_over else "running"
    reason = f"{row.state} before its supervisor started; see its log" if is_over else ""
    bar = Bar(
        stage=element.stage,
        slice_index=min(element.slices),
        attempt=0,
        job_id=row.job_id,
        node=row.node_list,
        eligible_unix_s=row.eligible_unix_s,
        start_unix_s=row.start_unix_s,
        end_unix_s=row.end_unix_s if row.end_unix_s is not None else now_unix_s,
        outcome=outcome,
        reason=reason,
    )
    return AttemptFacts(bar=bar, record=None, completion=None, accounting=row)


def _newest_word(
    record: AttemptRecord, row: TaskAccounting | None, answer: Answer
) -> TaskAccounting | None:
    """Return the newest state of a slice's last attempt: `status`'s answer if it is newer."""
    task = answer.tasks.get(record.job_id)
    if task is None:
        lags = row is not None and row.state in LIVING_STATES and answer.knows_the_living
        return None if lags else row
    is_newer = task.state in RUNNING_STATES or row is None or row.end_unix_s is None
    return task if is_newer else row


def _stage_attempts(
    stage: StageInputs,
    rows: Mapping[str, Sequence[TaskAccounting]],
    answer: Answer | None,
    now_unix_s: float,
) -> list[AttemptFacts]:
    completions = {(c.slice_index, c.attempt): c for c in stage.completions}
    joined = join_rows(stage.attempts, rows, completions)
    last_attempt: dict[int, int] = {}
    for record in stage.attempts:
        last_attempt[record.slice_index] = record.attempt
    facts = []
    told: set[int] = set()
    for record in sorted(stage.attempts, key=lambda a: a.started_unix_s):
        key = (record.slice_index, record.attempt)
        row = joined[key]
        is_last = last_attempt[record.slice_index] == record.attempt
        own_report = stage.run == REPORT_RUN and is_last and not stage.is_former
        word = _newest_word(record, row, answer) if is_last and answer is not None else row
        outcome, reason, end = _how_it_ended(
            record, completions.get(key), word, None if own_report else stage.timings, now_unix_s
        )
        first_row = row if id(row) not in told else None
        told.add(id(row))
        bar = _bar(record, first_row, outcome, reason, end)
        ended = completions.get(key)
        facts.append(AttemptFacts(bar=bar, record=record, completion=ended, accounting=first_row))
    return _ended_by_rows(facts, joined)


def _ended_by_rows(
    facts: Sequence[AttemptFacts], joined: Mapping[Key, TaskAccounting | None]
) -> list[AttemptFacts]:
    """Sort the attempts; those whose node's clock was set get their row's end."""
    rows = [joined[fact.bar.slice_index, fact.bar.attempt] for fact in facts]
    places: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(id(row), []).append(place)
    found = list(facts)
    for first, *more in places.values():
        last = (first, *more)[-1]
        row, completion = rows[last], facts[last].completion
        if row is None or row.end_unix_s is None or completion is None:
            continue
        bar, begun = facts[last].bar, facts[first].bar.start_unix_s
        if why := why_end_is_the_rows(begun, completion, row):
            name = words.attempt_name(bar.stage, bar.slice_index, bar.attempt, bar.job_id)
            bar = replace(bar, end_unix_s=max(row.end_unix_s, bar.start_unix_s))
            found[last] = replace(facts[last], bar=bar, clock_note=f"{name}: {why}")
    return found


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
    """Return outcome, reason and end; `row` is the accounting of the attempt's start.

    `timings` is None for the stage that writes this report.
    """
    if completion is not None:
        return completion.outcome, completion.reason, completion.ended_unix_s
    if row is not None and row.state in RUNNING_STATES:
        return "running", "", now_unix_s
    if row is not None and row.end_unix_s is not None and row.state != "PENDING":
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
