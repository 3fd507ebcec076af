"""Tasks, waits, times and use of resources of each stage. PURE."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slurm_jobs.common.records import TaskAccounting
from slurm_jobs.reconcile import Status
from slurm_jobs.report import words
from slurm_jobs.report.inputs.records import StageInputs
from slurm_jobs.report.intervals import max_overlap, merge, total_s
from slurm_jobs.report.model.run import Distribution, StageNumbers
from slurm_jobs.report.model.values import Quantity, known, missing
from slurm_jobs.report.numbers.attempts import (
    REPORT_RUN,
    AttemptFacts,
    starts_without_row,
)
from slurm_jobs.report.numbers.joining import CLOCK_SKEW_S
from slurm_jobs.report.numbers.load import level_of
from slurm_jobs.report.numbers.results import SliceResults, stage_results
from slurm_jobs.report.numbers.status import Standing

Summary = Callable[[list[float]], Any]
_NO_ACCOUNTING = "no accounting for this stage's jobs"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Start:
    """Row of the accounting, and its length."""

    row: TaskAccounting
    elapsed_s: float | None
    """Until the records were read, if it still runs; None if unknown."""
    is_at_least: bool
    """True if it has ended, or may have, at an unknown time."""


def stage_numbers(
    stage: StageInputs, facts: Sequence[AttemptFacts], standing: Standing, results: SliceResults
) -> StageNumbers:
    """Return all numbers of one stage; `results` are the valid ones."""
    rows = [f.accounting for f in facts if f.accounting is not None]
    lacking = lacking_starts(facts)
    return StageNumbers(
        name=stage.name,
        run=stage.run,
        is_former=stage.is_former,
        status=standing.status,
        status_reason=standing.reason,
        num_tasks=stage.num_slices,
        slices_per_task=_slices_per_task(facts),
        num_completed=standing.counts["completed"],
        num_failed=standing.counts["failed"],
        num_running=standing.counts["running"],
        num_attempts=len(facts),
        num_retries=len(facts) - len({f.bar.slice_index for f in facts}),
        max_running=max_overlap((f.bar.start_unix_s, f.bar.end_unix_s) for f in facts),
        dependency_wait_median_s=_wait(rows, "submit_unix_s", "eligible_unix_s", np.median),
        queue_wait_median_s=_wait(rows, "eligible_unix_s", "start_unix_s", np.median),
        queue_wait_max_s=_bounded(_wait(rows, "eligible_unix_s", "start_unix_s", np.max), lacking),
        running_s=_running(stage, facts, standing.status),
        task_time=_task_time(facts),
        failures=tuple(_failure(f) for f in facts if f.bar.outcome == "failed"),
        results=stage_results(stage, results),
        **_resources(facts, lacking),
        **_memory(stage, rows, _joined(lacking, _unended(rows))),
        gpu_busy=_gpu_busy(stage, rows),
        unrecorded_gpu_hours=_unrecorded_gpu_hours(facts),
    )


def lacking_starts(facts: Sequence[AttemptFacts]) -> str:
    """Return why sums and maxima over a stage's starts are lower bounds; empty if they are not."""
    starts, num_starts = starts_without_row(facts)
    sources = {f.accounting.source for f in facts if f.accounting is not None}
    if not starts or not sources:
        return ""
    why = " (the local scheduler keeps only a task's last)" if sources == {"local"} else ""
    return f"the accounting lacks {len(starts)} of {num_starts} starts{why}"


def _slices_per_task(facts: Sequence[AttemptFacts]) -> int:
    slices: dict[str, set[int]] = {}
    for fact in facts:
        slices.setdefault(fact.bar.job_id, set()).add(fact.bar.slice_index)
    return max((len(own) for own in slices.values()), default=1)


def _failure(fact: AttemptFacts) -> str:
    bar = fact.bar
    reason = bar.reason or "no reason was written down"
    name = words.attempt_name(bar.stage, bar.slice_index, bar.attempt, bar.job_id)
    return f"{name}: {reason}"


def _running(stage: StageInputs, facts: Sequence[AttemptFacts], status: Status) -> Quantity:
    if stage.run == REPORT_RUN and status == "running":
        return missing("s", "this report is being made")
    if not facts:
        return missing("s", "not started")
    return known(total_s(merge((f.bar.start_unix_s, f.bar.end_unix_s) for f in facts)), "s")


def _task_time(facts: Sequence[AttemptFacts]) -> Distribution | None:
    done = [f.bar for f in facts if f.bar.outcome == "completed"]
    if not done:
        return None
    times = np.array([bar.end_unix_s - bar.start_unix_s for bar in done])
    slowest = done[int(times.argmax())]
    return Distribution(
        num=len(done),
        min_s=float(times.min()),
        median_s=float(np.median(times)),
        mean_s=float(times.mean()),
        p95_s=float(np.percentile(times, 95)),
        max_s=float(times.max()),
        slowest=f"slice {slowest.slice_index} (attempt {slowest.attempt}, {slowest.node})",
    )


def _wait(rows: Sequence[TaskAccounting], begin: str, end: str, of: Summary) -> Quantity:
    waits = [
        getattr(row, end) - getattr(row, begin)
        for row in rows
        if getattr(row, begin) is not None and getattr(row, end) is not None
    ]
    if not waits:
        return missing("s", _NO_ACCOUNTING if not rows else "the accounting lacks these times")
    return known(max(0.0, float(of(waits))), "s")


def _resources(facts: Sequence[AttemptFacts], lacking: str) -> dict[str, Any]:
    """Return allocated and used resources, as far as the accounting has them."""
    starts = _starts(facts)
    rows = [start.row for start in starts]
    bounded = {
        "longest_s": _longest(starts),
        "gpu_hours": _hours(starts, "num_gpus", "GPU h"),
        "cpu_hours": _hours(starts, "num_cpus", "CPU h"),
    }
    num_open = sum(start.is_at_least for start in starts)
    ends = f"the accounting lacks the end of {num_open} of {len(starts)} starts" if num_open else ""
    return {
        **{name: _bounded(number, _joined(lacking, ends)) for name, number in bounded.items()},
        "requested_cpus": _asked(rows, "num_cpus", "count"),
        "cpu_efficiency": _cpu_efficiency(rows),
        "requested_gpus": _asked(rows, "num_gpus", "count"),
        "time_limit_s": _asked(rows, "time_limit_s", "s"),
    }


def _bounded(number: Quantity, lacking: str) -> Quantity:
    """Return a sum or maximum over starts of which some are missing."""
    return number if number.value is None else replace(number, at_least=lacking)


def _joined(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))


def _unended(rows: Sequence[TaskAccounting]) -> str:
    """Return why the peak memory is a lower bound: it is known at the end of starts."""
    num = sum(row.end_unix_s is None for row in rows)
    return f"{num} of {len(rows)} starts have not ended in the accounting" if num else ""


def _memory(stage: StageInputs, rows: Sequence[TaskAccounting], lacking: str) -> dict[str, Any]:
    """Return memory of one task, of one node at most, and the request per node."""
    num_tasks = max(1, int(stage.resources.get("tasks_per_node") or 1))
    largest = _bounded(_largest(rows, "max_rss_bytes", "bytes"), lacking)
    on_node = largest
    if any(row.state == "OUT_OF_MEMORY" for row in rows):
        on_node = missing("bytes", "a start ran out of memory; its peak is more than was sampled")
    elif any(row.source == "local" for row in rows):
        on_node = missing(
            "bytes", "the local scheduler knows a task's largest process, not all of them together"
        )
    elif largest.value is not None:
        on_node = known(largest.value * num_tasks, "bytes", lacking)
    return {
        "max_rss_bytes": largest,
        "tasks_per_node": num_tasks,
        "node_mem_bytes": on_node,
        "requested_mem_bytes": _asked(rows, "requested_mem_bytes", "bytes"),
    }


def _gpu_busy(stage: StageInputs, rows: Sequence[TaskAccounting]) -> Quantity:
    if rows and not any(row.num_gpus for row in rows):
        return missing("fraction", "no GPU was allocated")
    busy = level_of([(each, each.readings) for each in stage.readings], "gpu_busy_share")
    if busy is None:
        return missing("fraction", "no reading of a node shows how busy a GPU was")
    return known(busy.mean, "fraction")


def _elapsed_s(row: TaskAccounting) -> float | None:
    if row.start_unix_s is None or row.end_unix_s is None:
        return None
    return row.end_unix_s - row.start_unix_s


def _reason(rows: Sequence[TaskAccounting], what: str) -> str:
    return f"the accounting lacks {what}" if rows else _NO_ACCOUNTING


def _largest(rows: Sequence[TaskAccounting], name: str, unit: str) -> Quantity:
    values = [getattr(row, name) for row in rows if getattr(row, name) is not None]
    return known(max(values), unit) if values else missing(unit, _reason(rows, name))


def _asked(rows: Sequence[TaskAccounting], name: str, unit: str) -> Quantity:
    """Return the request of the newest start that has one: a resume may have changed it."""
    asked = [row for row in rows if getattr(row, name) is not None]
    if not asked:
        return missing(unit, _reason(rows, name))
    newest = max(asked, key=lambda row: (row.start_unix_s or 0.0, row.submit_unix_s or 0.0))
    return known(getattr(newest, name), unit)


def _starts(facts: Sequence[AttemptFacts]) -> list[_Start]:
    """Return each row once; one without an end lasts to the end of its attempts, if known.

    Running attempts end when the records were read, and so does their use of resources.
    """
    by_job: dict[str, list[AttemptFacts]] = {}
    for fact in facts:
        by_job.setdefault(fact.bar.job_id, []).append(fact)
    rows = [f.accounting for f in facts if f.accounting is not None]
    return [_start(row, by_job.get(row.job_id, ())) for row in rows]


def _start(row: TaskAccounting, of_job: Sequence[AttemptFacts]) -> _Start:
    elapsed_s = _elapsed_s(row)
    if elapsed_s is not None or row.start_unix_s is None:
        return _Start(row=row, elapsed_s=elapsed_s, is_at_least=False)
    # Without an end it is the job's last start: no other start's attempt began later.
    # Its first attempt may have an earlier time, by a clock that is behind.
    first = min((f.bar.start_unix_s for f in of_job if f.accounting is row), default=math.inf)
    begun = min(first, row.start_unix_s - CLOCK_SKEW_S)
    own = [f for f in of_job if f.bar.start_unix_s >= begun]
    is_running = any(f.bar.outcome == "running" for f in own)
    ends = [f.bar.end_unix_s for f in own if f.record or f.bar.outcome == "running"]
    elapsed_s = max(0.0, max(ends) - row.start_unix_s) if ends else None
    return _Start(row=row, elapsed_s=elapsed_s, is_at_least=not is_running)


def _unrecorded_gpu_hours(facts: Sequence[AttemptFacts]) -> float:
    starts = _starts([fact for fact in facts if fact.record is None])
    return _hours(starts, "num_gpus", "GPU h").value or 0.0


def _longest(starts: Sequence[_Start]) -> Quantity:
    elapsed = [start.elapsed_s for start in starts if start.elapsed_s is not None]
    if not elapsed:
        return missing("s", _reason([start.row for start in starts], "ended jobs"))
    return known(max(elapsed), "s")


def _cpu_efficiency(rows: Sequence[TaskAccounting]) -> Quantity:
    used = allocated = 0.0
    for row in rows:
        elapsed = _elapsed_s(row)
        if row.cpu_time_s is not None and row.num_cpus and elapsed:
            used += row.cpu_time_s
            allocated += row.num_cpus * elapsed
    if not allocated:
        return missing("fraction", _reason(rows, "processor time"))
    return known(used / allocated, "fraction")


def _hours(starts: Sequence[_Start], name: str, unit: str) -> Quantity:
    pairs = [(getattr(start.row, name), start.elapsed_s) for start in starts]
    hours = [
        count * elapsed / 3600
        for count, elapsed in pairs
        if count is not None and elapsed is not None  # a job whose set-up fails may last 0 s
    ]
    if not hours:
        return missing(unit, _reason([start.row for start in starts], name))
    return known(sum(hours), unit)
