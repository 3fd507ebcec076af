"""Budget of the time from submit to end, second by second. PURE.

Every second belongs to one part: a running stage, the queue, a dependency, a time without submitted
work, or `unexplained`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from slurm_jobs.base import units
from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.report.attempts.gathered_attempts import (
    REPORT_RUN,
    AttemptFacts,
    elements_of,
    recorded_starts,
)
from slurm_jobs.report.inputs.run_inputs import ReportInputs
from slurm_jobs.report.numbers.standings import Standing
from slurm_jobs.report.steps.intervals import Interval, budget
from slurm_jobs.run.accounted_starts import CLOCK_SKEW_S, began

Attempts = Mapping[str, tuple[AttemptFacts, ...]]


def run_span(
    inputs: ReportInputs, attempts: Attempts, standing: Mapping[str, Standing]
) -> Interval:
    """Return submit and end of the run, seconds since 1970, without the report's stage.

    The end is the time of reading if anything runs, or waits and can start; otherwise that of the
    last attempt. Stranded slices do not count.
    """
    created = run_begin(inputs)
    ends = [f.bar.end_unix_s for s in _worked(inputs) for f in attempts[s]]
    if not ends:
        ends = [row.end_unix_s for row in inputs.accounting if row.end_unix_s is not None]
    if not ends or any(standing[s].is_open for s in _worked(inputs)):
        return created, max(inputs.read_unix_s, created)
    return created, max(*ends, created)


def run_begin(inputs: ReportInputs) -> float:
    """Return when the run was created by the submitter's clock, or its first job if earlier.

    That is its first submit or start by the scheduler's clock; without accounting by the nodes'.
    """
    moments: list[float] = []
    for row in inputs.accounting:
        moments += filter(None, (row.submit_unix_s, row.start_unix_s))
    if not moments:
        moments = [a.started_unix_s for stage in inputs.stages for a in stage.attempts]
    return min([_created(inputs), *moments])


def begin_note(inputs: ReportInputs) -> tuple[str, ...]:
    """Return a note if the run's first job existed before the run; none if the clocks agree."""
    ahead_s = _created(inputs) - run_begin(inputs)
    if ahead_s <= CLOCK_SKEW_S:
        return ()
    host = inputs.run.get("host", "not recorded")
    note = (
        f"the clocks disagree: by that of the machine that submitted it ({host}) the run was "
        f"created {units.seconds(ahead_s)} after its first job was there; it begins with that job"
    )
    return (note,)


def _created(inputs: ReportInputs) -> float:
    return float(inputs.run["created_unix_s"])


def timeline(inputs: ReportInputs, attempts: Attempts, span: Interval) -> tuple[TimeShare, ...]:
    """Return the budget of the whole run from submit to end; see also `coverage_note`."""
    start, end = span
    rows = inputs.accounting
    running = {stage: attempts[stage] for stage in _worked(inputs)}
    claims: list[tuple[str, str, Sequence[Interval]]] = [
        (
            f"{stage} running",
            "running",
            [(f.bar.start_unix_s, f.bar.end_unix_s) for f in facts if f.record is not None],
        )
        for stage, facts in [*running.items(), *_earlier_reports(inputs, attempts, end).items()]
    ]
    # What Slurm counts as running outside the attempts is the job's.
    jobs = [
        (row.start_unix_s, row.end_unix_s)
        for row in rows
        if row.start_unix_s is not None and row.end_unix_s is not None
    ]
    claims.append(("job start, end, pauses", "startup", jobs))
    claims.append(("requeue wait", "queue", _requeue_waits(attempts)))
    # From eligible to start, or to the run's end for jobs that did not start.
    queue_waits = [
        (row.eligible_unix_s, row.start_unix_s if row.start_unix_s is not None else end)
        for row in rows
        if row.eligible_unix_s is not None
        and (row.start_unix_s is not None or row.state == "PENDING")
    ]
    claims.append(("queue wait", "queue", queue_waits))
    parents_end = _parents_end(inputs)
    waiting = [
        (row.submit_unix_s, min(row.eligible_unix_s, parents_end.get(row.key, math.inf)))
        for row in rows
        if row.submit_unix_s is not None and row.eligible_unix_s is not None
    ]
    claims.append(("waiting for a parent stage", "held", waiting))
    if not coverage_note(inputs, attempts, end):
        idle = _nothing_submitted(inputs, parents_end, start, end)
        claims.append(("gaps between jobs", "idle", idle))
    return budget(start, end, claims, ("unexplained", "unexplained"))


def _worked(inputs: ReportInputs) -> list[str]:
    return [stage.name for stage in inputs.stages if stage.run != REPORT_RUN]


def _earlier_reports(
    inputs: ReportInputs, attempts: Attempts, end: float
) -> dict[str, list[AttemptFacts]]:
    """Return reports that were made before a resume, by their stage."""
    return {
        stage.name: [
            fact
            for fact in attempts[stage.name]
            if fact.completion is not None and fact.bar.start_unix_s < end
        ]
        for stage in inputs.stages
        if stage.run == REPORT_RUN
    }


def _requeue_waits(attempts: Attempts) -> list[Interval]:
    """Return the time between two attempts of one job: Slurm requeued it."""
    waits = []
    for facts in attempts.values():
        by_slice = sorted(facts, key=lambda f: (f.bar.slice_index, f.bar.start_unix_s))
        for earlier, later in itertools.pairwise(by_slice):
            same = earlier.bar.slice_index == later.bar.slice_index
            if same and earlier.job == later.job:
                waits.append((earlier.bar.end_unix_s, later.bar.start_unix_s))
    return waits


def _parents_end(inputs: ReportInputs) -> dict[JobKey, float]:
    """Return for each job that never began when its last possible parent ended.

    Possible parents were submitted before it. From then on it waits for no job: either it can
    start, or it never will.
    """
    elements = elements_of(inputs)
    submits: dict[JobKey, float] = {}
    for row in inputs.accounting:
        if row.submit_unix_s is not None:  # a requeue gives a job a later one
            submits[row.key] = min(row.submit_unix_s, submits.get(row.key, math.inf))
    jobs: dict[str, list[tuple[float, float]]] = {}
    for row in inputs.accounting:
        if row.key in elements and row.key in submits and began(row):
            end = row.end_unix_s if row.end_unix_s is not None else inputs.read_unix_s
            jobs.setdefault(elements[row.key].stage, []).append((submits[row.key], end))
    ancestors: dict[str, set[str]] = {}
    for stage in inputs.stages:  # parents first
        above = (name for parent in stage.after for name in ancestors.get(parent, ()))
        ancestors[stage.name] = {*stage.after, *above}
    latest: dict[JobKey, float] = {}
    same: dict[tuple[str, float], float] = {}  # of the elements of an array, listed once
    for row in inputs.accounting:
        if began(row) or row.key not in elements or row.key not in submits:
            continue
        name, submitted = key = (elements[row.key].stage, submits[row.key])
        if key not in same:
            parents = (job for ancestor in ancestors[name] for job in jobs.get(ancestor, ()))
            same[key] = max((end for at, end in parents if at <= submitted), default=math.inf)
        latest[row.key] = same[key]
    return latest


def _nothing_submitted(
    inputs: ReportInputs, parents_end: Mapping[JobKey, float], start: float, end: float
) -> list[Interval]:
    """Return the time before the first submit, and from the end of all jobs to the next submit."""
    spans = []
    for row in inputs.accounting:
        if row.submit_unix_s is not None:
            ended = row.end_unix_s if row.end_unix_s is not None else end
            spans.append((row.submit_unix_s, min(ended, parents_end.get(row.key, math.inf))))
    idle = []
    covered_until = start
    for submit, ended in sorted(spans):
        if submit > covered_until:
            idle.append((covered_until, submit))
        covered_until = max(covered_until, ended)
    return idle


def coverage_note(inputs: ReportInputs, attempts: Attempts, end: float) -> str:
    """Return why the queue wait is not fully known; empty if it is."""
    if not inputs.accounting:
        return (
            "no accounting was available: queue wait cannot be distinguished from other gaps, "
            "which count as unexplained"
        )
    facts = [fact for stage in _worked(inputs) for fact in attempts[stage]]
    for earlier in _earlier_reports(inputs, attempts, end).values():
        facts += earlier
    starts = recorded_starts(facts)
    if not starts.without_row:
        return ""
    lacking = sorted(set(starts.without_row))
    shown = ", ".join(lacking[:5]) + (" ..." if len(lacking) > 5 else "")
    return (
        f"the accounting lacks {len(starts.without_row)} of {starts.num} starts (jobs {shown}): "
        "their queue wait counts as unexplained"
    )
