"""Join of attempts to rows of the accounting. PURE.

A row is one start of a job or array task. It may contain several attempts, or none if the start
died before its supervisor. If every start of a job left a record and has a row, they are joined in
order, regardless of the node's clock; otherwise by the clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_jobs.common.records import AttemptRecord, CompletionRecord, TaskAccounting

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
