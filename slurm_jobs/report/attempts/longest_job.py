"""Parts of the time of a stage's longest job. PURE.

A job lasts longer than the attempt in it that completed: it starts and ends around its attempts,
and may have some that failed, or several slices.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.report.attempts.gathered_attempts import AttemptFacts
from slurm_jobs.report.steps.intervals import merge, total_s

_MAX_ATTEMPTS = 3
"""Attempts that are named one by one."""


def longest_job(row: TaskAccounting, elapsed_s: float, facts: Sequence[AttemptFacts]) -> str:
    """Return `job 12_7: attempt 1 failed after 20.0 s, ... 4.00 s around them`.

    Args:
        row: accounting of the job's start.
        elapsed_s: its length.
        facts: attempts of the stage.
    """
    first = next(fact for fact in facts if fact.accounting is row)
    if first.record is None:
        return f"job {row.job_id}: {first.bar.reason or 'no attempt was recorded'}"
    bars = [
        fact.bar
        for fact in facts
        if fact.job == first.job
        and fact.record is not None
        and fact.record.restart == first.record.restart
    ]
    bars.sort(key=lambda bar: bar.start_unix_s)
    has_slices = len({bar.slice_index for bar in bars}) > 1
    lengths = [(bar.start_unix_s, bar.end_unix_s) for bar in bars]
    if len(bars) > _MAX_ATTEMPTS:
        of_slices = f" at {len({bar.slice_index for bar in bars})} slices" if has_slices else ""
        spent = units.seconds(total_s(merge(lengths)))
        parts = [f"{len(bars)} attempts{of_slices}, together {spent}"]
    else:
        parts = []
        for bar, (begin, end) in zip(bars, lengths, strict=True):
            at_slice = f" at slice {bar.slice_index}" if has_slices else ""
            verb = "has run for" if bar.outcome == "running" else f"{bar.outcome} after"
            parts.append(f"attempt {bar.attempt}{at_slice} {verb} {units.seconds(end - begin)}")
    around_s = elapsed_s - total_s(merge(lengths))
    if around_s > 0:
        parts.append(f"start, end and pauses {units.seconds(around_s)}")
    return f"job {row.job_id}: {', '.join(parts)}"
