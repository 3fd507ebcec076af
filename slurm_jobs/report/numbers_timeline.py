"""Where the time from submit to end went, second by second: PURE.

Every second goes to one place: a running stage, the queue, a dependency, a
time in which nothing was submitted, or `unexplained`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from slurm_jobs.report.inputs import ReportInputs
from slurm_jobs.report.intervals import Interval, budget
from slurm_jobs.report.model import TimeShare
from slurm_jobs.report.numbers_attempts import REPORT_RUN, AttemptFacts
from slurm_jobs.report.numbers_status import Standing

Attempts = Mapping[str, tuple[AttemptFacts, ...]]


def run_span(
    inputs: ReportInputs, attempts: Attempts, standing: Mapping[str, Standing]
) -> Interval:
    """Submit and end of the run, seconds since 1970; the report's own stage is left out.

    The end is the moment of reading if anything runs, or waits and can start;
    else that of the last attempt. What is stranded holds no end open.
    """
    created = float(inputs.run["created_unix_s"])
    ends = [f.bar.end_unix_s for s in _worked(inputs) for f in attempts[s]]
    if not ends:
        ends = [row.end_unix_s for row in inputs.accounting if row.end_unix_s is not None]
    if not ends or any(standing[s].is_open for s in _worked(inputs)):
        return created, max(inputs.read_unix_s, created)
    return created, max(*ends, created)


def timeline(
    inputs: ReportInputs, attempts: Attempts, span: Interval
) -> tuple[tuple[TimeShare, ...], str]:
    """The budget of the whole run from submit to end, and what it rests on."""
    start, end = span
    claims: list[tuple[str, str, Sequence[Interval]]] = [
        (f"{stage} running", "running", _running(attempts[stage])) for stage in _worked(inputs)
    ]
    claims.append(("job start, end, pauses", "startup", _jobs(inputs)))
    claims.append(("requeue wait", "queue", _requeue_waits(attempts)))
    claims.append(("queue wait", "queue", _queue_waits(inputs, end)))
    claims.append(("waiting for a parent stage", "held", _held(inputs)))
    note = _coverage_note(inputs, attempts)
    if not note:
        claims.append(("nothing submitted", "idle", _nothing_submitted(inputs, start, end)))
    return budget(start, end, claims, ("unexplained", "unexplained")), note


def _worked(inputs: ReportInputs) -> list[str]:
    return [stage.name for stage in inputs.stages if stage.run != REPORT_RUN]


def _running(facts: Sequence[AttemptFacts]) -> list[Interval]:
    return [(f.bar.start_unix_s, f.bar.end_unix_s) for f in facts]


def _jobs(inputs: ReportInputs) -> list[Interval]:
    """All the time that Slurm counts as running; what is no attempt is the job's own."""
    return [
        (row.start_unix_s, row.end_unix_s)
        for row in inputs.accounting
        if row.start_unix_s is not None and row.end_unix_s is not None
    ]


def _requeue_waits(attempts: Attempts) -> list[Interval]:
    """Between two attempts of one job: Slurm put it back into the queue."""
    waits = []
    for facts in attempts.values():
        by_slice = sorted(facts, key=lambda f: (f.bar.slice_index, f.bar.attempt))
        for earlier, later in itertools.pairwise(by_slice):
            same = earlier.bar.slice_index == later.bar.slice_index
            if same and earlier.bar.job_id == later.bar.job_id:
                waits.append((earlier.bar.end_unix_s, later.bar.start_unix_s))
    return waits


def _queue_waits(inputs: ReportInputs, end: float) -> list[Interval]:
    """From eligible to start, or to the end of the run for a job that has not started."""
    return [
        (row.eligible_unix_s, row.start_unix_s if row.start_unix_s is not None else end)
        for row in inputs.accounting
        if row.eligible_unix_s is not None
        and (row.start_unix_s is not None or row.state == "PENDING")
    ]


def _held(inputs: ReportInputs) -> list[Interval]:
    return [
        (row.submit_unix_s, row.eligible_unix_s)
        for row in inputs.accounting
        if row.submit_unix_s is not None and row.eligible_unix_s is not None
    ]


def _nothing_submitted(inputs: ReportInputs, start: float, end: float) -> list[Interval]:
    """Up to the first submit, and between the end of all jobs so far and the next submit."""
    spans = sorted(
        (row.submit_unix_s, row.end_unix_s if row.end_unix_s is not None else end)
        for row in inputs.accounting
        if row.submit_unix_s is not None
    )
    idle = []
    covered_until = start
    for submit, ended in spans:
        if submit > covered_until:
            idle.append((covered_until, submit))
        covered_until = max(covered_until, ended)
    return idle


def _coverage_note(inputs: ReportInputs, attempts: Attempts) -> str:
    """Why the queue wait is not fully known; empty if it is."""
    if not inputs.accounting:
        return (
            "no accounting was available: queue wait cannot be told from other gaps, "
            "which count as unexplained"
        )
    known: dict[tuple[str, int], bool] = {}
    for fact in (f for stage in _worked(inputs) for f in attempts[stage]):
        start = (fact.record.job_id, fact.record.restart)
        known[start] = known.get(start, False) or fact.accounting is not None
    lacking = sorted({job_id for (job_id, _), is_known in known.items() if not is_known})
    if lacking:
        num_lacking = sum(not is_known for is_known in known.values())
        shown = ", ".join(lacking[:5]) + (" ..." if len(lacking) > 5 else "")
        return (
            f"the accounting lacks {num_lacking} of {len(known)} starts (jobs {shown}): "
            "their queue wait counts as unexplained"
        )
    return ""
