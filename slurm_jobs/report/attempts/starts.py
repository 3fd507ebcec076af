"""Starts of jobs and array tasks, and how long each lasted. PURE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.report.attempts.gathered_attempts import AttemptFacts
from slurm_jobs.run.accounted_starts import CLOCK_SKEW_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Row of the accounting, and its length."""

    row: TaskAccounting
    elapsed_s: float | None
    """Until the records were read, if it still runs; None if unknown."""
    is_at_least: bool
    """True if it has ended, or may have, at an unknown time."""


def ended_after_s(row: TaskAccounting) -> float | None:
    """Return the elapsed time of a start that has ended; None if an end or begin is unknown."""
    if row.start_unix_s is None or row.end_unix_s is None:
        return None
    return row.end_unix_s - row.start_unix_s


def starts_of(facts: Sequence[AttemptFacts]) -> list[Start]:
    """Return each row once; one without an end lasts to the end of its attempts, if known.

    Running attempts end when the records were read, and so does their use of resources.
    """
    by_job: dict[JobKey, list[AttemptFacts]] = {}
    for fact in facts:
        by_job.setdefault(fact.job, []).append(fact)
    rows = [f.accounting for f in facts if f.accounting is not None]
    return [_start(row, by_job.get(row.key, ())) for row in rows]


def _start(row: TaskAccounting, of_job: Sequence[AttemptFacts]) -> Start:
    elapsed_s = ended_after_s(row)
    if elapsed_s is not None or row.start_unix_s is None:
        return Start(row=row, elapsed_s=elapsed_s, is_at_least=False)
    # Without an end it is the job's last start: no other start's attempt began later.
    # Its first attempt may have an earlier time, by a clock that is behind.
    first = min((f.bar.start_unix_s for f in of_job if f.accounting is row), default=math.inf)
    begun = min(first, row.start_unix_s - CLOCK_SKEW_S)
    after_begin = [f for f in of_job if f.bar.start_unix_s >= begun]
    is_running = any(f.bar.outcome == "running" for f in after_begin)
    ends = [f.bar.end_unix_s for f in after_begin if f.record or f.bar.outcome == "running"]
    elapsed_s = max(0.0, max(ends) - row.start_unix_s) if ends else None
    return Start(row=row, elapsed_s=elapsed_s, is_at_least=not is_running)
