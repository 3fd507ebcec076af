"""Join of attempts to the accounting, where a row is one start of a job or array task. PURE.

A row may contain several attempts, or none if the start died before its supervisor. If every start
of a job left a record and has a row, they are joined in order, regardless of the node's clock;
otherwise by the clocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionRecord,
    TaskAccounting,
)
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.orders import name_of_job
from slurm_jobs.schedulers.job_states import LIVING_STATES, RUNNING_STATES
from slurm_jobs.schedulers.protocol import Answer

CLOCK_SKEW_S = 5.0
"""A node's clock may be this far behind the controller's."""

AttemptKey = tuple[int, int]
"""Slice and attempt."""


def job_of(record: AttemptRecord, run_name: str) -> JobKey:
    """Return the job or array element that made an attempt; needs no ledger."""
    return JobKey(name_of_job(run_name, record.stage, record.token), record.job_id)


def began(row: TaskAccounting) -> bool:
    """Check whether the row is a start: a job cancelled in the queue got no node and no time."""
    never = not row.node_list and row.end_unix_s == row.start_unix_s
    return row.start_unix_s is not None and not never


def join_rows(
    records: Sequence[AttemptRecord],
    rows: Mapping[JobKey, Sequence[TaskAccounting]],
    completions: Mapping[AttemptKey, CompletionRecord],
    run_name: str,
) -> dict[AttemptKey, TaskAccounting | None]:
    """Return the row of each attempt of a stage; None if the accounting lacks it.

    Args:
        records: attempts of the stage.
        rows: accounting by job, starts in order.
        completions: completions of the stage.
        run_name: name of the run, which its jobs' names begin with.
    """
    restarts: dict[JobKey, set[int]] = defaultdict(set)
    for record in records:
        restarts[job_of(record, run_name)].add(record.restart)
    joined: dict[AttemptKey, TaskAccounting | None] = {}
    for record in records:
        job = job_of(record, run_name)
        key, job_rows = (record.slice_index, record.attempt), rows.get(job, ())
        if restarts[job] == set(range(len(job_rows))):
            joined[key] = job_rows[record.restart]
        else:
            joined[key] = _row_by_clock(record, job_rows, completions.get(key))
    return joined


def _row_by_clock(
    record: AttemptRecord, rows: Sequence[TaskAccounting], completion: CompletionRecord | None
) -> TaskAccounting | None:
    """Return the start in which an attempt ran: the last one before it that had not ended.

    If the node's clock is further behind, it is the only start, if the attempt ended within it.
    """
    for row in reversed(rows):
        assert row.start_unix_s is not None
        if record.started_unix_s >= row.start_unix_s - CLOCK_SKEW_S:
            latest = float("inf") if row.end_unix_s is None else row.end_unix_s + CLOCK_SKEW_S
            return row if record.started_unix_s <= latest else None
        if len(rows) == 1 and completion and row.start_unix_s < completion.ended_unix_s:
            return row
    return None


def newest_row(job: JobKey, row: TaskAccounting | None, answer: Answer) -> TaskAccounting | None:
    """Return the newest state of a slice's last attempt: `status`'s answer if it is newer."""
    task = answer.tasks.get(job)
    if task is None:
        lags = row is not None and row.state in LIVING_STATES and answer.knows_the_living
        return None if lags else row
    is_newer = task.state in RUNNING_STATES or row is None or row.end_unix_s is None
    return task if is_newer else row
