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
from typing import Any

from slurm_jobs.report.inputs import RankTiming, ReportInputs, StageInputs
from slurm_jobs.report.report_model import Bar, EvaluationNumbers, StageNumbers
from slurm_jobs.report.steps import CLOCK_TOLERANCE
from slurm_jobs.run_folder.ledger import Intent, latest_intents
from slurm_jobs.run_folder.run_records import RunMeta, RunRecords, StageRecords, StageSummary
from slurm_jobs.schedulers.protocol import LIVING_STATES, RUNNING_STATES, Answer
from slurm_jobs.shared import units
from slurm_jobs.shared.records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    TaskAccounting,
)
from slurm_jobs.status import (
    DECIDING_FIRST,
    NOT_NEEDED,
    SliceStatus,
    StageStatus,
    Status,
    reconcile,
)

# Join of attempts to rows of the accounting.
#
# A row is one start of a job or array task. It may contain several attempts, or none if the start
# died before its supervisor. If every start of a job left a record and has a row, they are joined
# in order, regardless of the node's clock; otherwise by the clocks.


CLOCK_SKEW_S = 5.0
"""A node's clock may be this far behind the controller's."""

Key = tuple[int, int]
"""Slice and attempt."""


def join_rows(
    records: Sequence[AttemptRecord],
    rows: Mapping[str, Sequence[TaskAccounting]],
    completions: Mapping[Key, CompletionRecord],
) -> dict[Key, TaskAccounting | None]:
    """Return the row of each attempt of a stage; None if the accounting lacks it.

    Args:
        records: attempts of the stage.
        rows: accounting by job id, starts in order.
        completions: completions of the stage.
    """
    restarts: dict[str, set[int]] = {}
    for record in records:
        restarts.setdefault(record.job_id, set()).add(record.restart)
    found: dict[Key, TaskAccounting | None] = {}
    for record in records:
        key, own = (record.slice_index, record.attempt), rows.get(record.job_id, ())
        if restarts[record.job_id] == set(range(len(own))):
            found[key] = own[record.restart]
        else:
            found[key] = _by_clock(record, own, completions.get(key))
    return found


def _by_clock(
    record: AttemptRecord, rows: Sequence[TaskAccounting], completion: CompletionRecord | None
) -> TaskAccounting | None:
    """Return the start in which an attempt ran: the last one before it that had not ended.

    If the node's clock is further behind, it is the only start, if the attempt ended within it.
    """
    for row in reversed(rows):
        assert row.start_unix_s is not None
        has_begun = record.started_unix_s >= row.start_unix_s - CLOCK_SKEW_S
        latest = float("inf") if row.end_unix_s is None else row.end_unix_s + CLOCK_SKEW_S
        if has_begun:
            return row if record.started_unix_s <= latest else None
    is_its_own = len(rows) == 1 and completion is not None and _ended_in(completion, rows[0])
    return rows[0] if is_its_own else None


def _ended_in(completion: CompletionRecord, row: TaskAccounting) -> bool:
    assert row.start_unix_s is not None
    return row.start_unix_s < completion.ended_unix_s


# Contradictions between the clocks of a run, and which one counts.
#
# Attempts are timed by their node's clock, starts by the controller's, which knows the length of
# each. If a clock was set while the job ran, the attempt would be far too long, or of no length.


def why_end_is_the_rows(
    begun_unix_s: float, completion: CompletionRecord, row: TaskAccounting
) -> str:
    """Return why a start's last attempt ends with its row; empty if its own end counts.

    Set-up lines run before the supervisor, so attempts may be shorter than their start: only if
    the start ended later, too, is that a contradiction.

    Args:
        begun_unix_s: begin of the start's first attempt, by its node's clock.
        completion: record of the last attempt.
        row: accounting of the start.
    """
    if row.start_unix_s is None or row.end_unix_s is None:
        return ""
    elapsed_s = row.end_unix_s - row.start_unix_s
    slack_s = CLOCK_SKEW_S + CLOCK_TOLERANCE * elapsed_s
    own_s = completion.ended_unix_s - begun_unix_s
    ends_early = completion.ended_unix_s < row.end_unix_s - slack_s
    is_short = ends_early and own_s < elapsed_s - slack_s
    if own_s <= elapsed_s + slack_s and not is_short:
        return ""
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
            name = units.attempt_name(bar.stage, bar.slice_index, bar.attempt, bar.job_id)
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


# Valid results of the stages.
#
# A resume may replace a job whose work was done: another config, or an array cut into fewer
# slices. Its time stays in the budgets; its result no longer counts. Valid is the completion of
# the newest intent that covers a slice (see `status.completed_slices`).


_EVALUATION_KEYS = frozenset({"evaluation", "exact_match"})

SliceResults = Mapping[int, Mapping[str, Any]]
"""Result of each slice, by slice, ascending."""


def current_results(inputs: ReportInputs) -> Mapping[str, SliceResults]:
    """Return the valid results by stage; those of all jobs if the ledger is unreadable."""
    return {stage.name: _slice_results(stage, inputs.intents) for stage in inputs.stages}


def _slice_results(stage: StageInputs, intents: Sequence[Intent] | None) -> SliceResults:
    """Return the result of the last completed attempt of each slice that the stage still has."""
    newest = latest_intents(intents or (), stage.name)
    found: dict[int, Mapping[str, Any]] = {}
    for done in stage.completions:
        index = done.slice_index
        is_own = intents is None or (index in newest and newest[index].token == done.token)
        if done.outcome == "completed" and index < stage.num_slices and is_own:
            found[index] = done.result
    return found


def has_newest_steps(
    stage: StageInputs, slice_index: int, intents: Sequence[Intent] | None
) -> bool:
    """Check whether the steps are of the slice's current plan, config and code.

    That holds if some were recorded under those, or if the training continued from a checkpoint
    under those: then earlier steps are its own, even if none were left to make. Without a readable
    ledger, or for an unknown slice, config and code count as current.
    """
    if slice_index >= stage.num_slices:
        return False
    newest = latest_intents(intents or (), stage.name).get(slice_index)
    if newest is None:
        return True
    own = {
        a.attempt
        for a in stage.attempts
        if a.slice_index == slice_index and a.fingerprint == newest.fingerprint
    }
    return not own.isdisjoint(_with_steps(stage, slice_index))


def _with_steps(stage: StageInputs, slice_index: int) -> set[int]:
    """Return the attempts with steps, or that continued from a checkpoint with some."""
    timings = [t for t in stage.timings if t.slice_index == slice_index]
    found = {t.attempt for t in timings if t.steps is not None and len(t.steps.steps)}
    found |= {
        t.attempt
        for t in timings
        for span in t.spans
        if span["name"] == "checkpoint_load" and _is_past_start(span.get("step"))
    }
    return found | {
        done.attempt
        for done in stage.completions
        if done.slice_index == slice_index and _is_past_start(done.result.get("resumed_from_step"))
    }


def _is_past_start(step: object) -> bool:
    return isinstance(step, int) and step > 0


def stage_results(stage: StageInputs, results: SliceResults) -> Mapping[str, float]:
    """Return the numbers of a stage without an array, nested names joined by a dot."""
    return flat_numbers(results[0]) if 0 in results and stage.num_slices == 1 else {}


def flat_numbers(values: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """Flatten nested mappings: `{"a": {"b": 1}}` is `{"a.b": 1}`; whole numbers stay whole."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.update(flat_numbers(value, f"{prefix}{key}."))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = value
    return found


def evaluation_numbers(stages: Sequence[StageNumbers]) -> tuple[EvaluationNumbers, ...]:
    """Return an entry for each stage with evaluation results, in the spec's order."""
    found = [EvaluationNumbers(stage=s.name, numbers=_evaluation(s.results)) for s in stages]
    return tuple(evaluation for evaluation in found if evaluation.numbers)


def _evaluation(results: Mapping[str, float]) -> Mapping[str, float]:
    """Return the evaluation numbers, without the prefix `evaluation.` unless names then collide."""
    own = {k: v for k, v in results.items() if not _EVALUATION_KEYS.isdisjoint(k.split("."))}
    found: dict[str, float] = {}
    for key, value in own.items():
        short = key.removeprefix("evaluation.")
        found[short if own.get(short, value) == value else key] = value
    return found


# Status of every stage, with the terms and rules of `status`.


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
