"""Tasks, waits, times and use of resources of each stage. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from slurm_jobs.base import units
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.base.quantities import Quantity, known, missing
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.report.attempts.gathered_attempts import (
    REPORT_RUN,
    AttemptFacts,
    recorded_starts,
)
from slurm_jobs.report.attempts.longest_job import longest_job
from slurm_jobs.report.attempts.starts import Start, ended_after_s, starts_of
from slurm_jobs.report.inputs.run_inputs import StageInputs
from slurm_jobs.report.numbers.current_results import SliceResults, stage_results
from slurm_jobs.report.numbers.standings import Standing
from slurm_jobs.report.numbers.trainings.node_load import level_of
from slurm_jobs.report.steps.intervals import max_overlap, merge, total_s
from slurm_jobs.report.values.stage_model import Distribution, StageNumbers

Summary = Callable[[list[float]], Any]
_NO_ACCOUNTING = "no accounting for this stage's jobs"
OUT_OF_MEMORY = "OUT_OF_MEMORY"
"""State of a start that was killed at its memory limit."""
_MAX_RSS = "memory used (MaxRSS): Slurm samples it while a job runs, unless the site disabled it"
_REQUEST_NAMES = {
    "num_cpus": "the number of CPUs",
    "num_gpus": "the number of GPUs",
    "time_limit_s": "a time limit",
    "requested_mem_bytes": "a memory request: `mem_gb` is not set, or means all of a node",
}


def stage_numbers(
    stage: StageInputs, facts: Sequence[AttemptFacts], standing: Standing, results: SliceResults
) -> StageNumbers:
    """Return all numbers of one stage; `results` are the valid ones."""
    rows = [f.accounting for f in facts if f.accounting is not None]
    starts = starts_of(facts)
    num_open = sum(start.is_at_least for start in starts)
    ends = f"the accounting lacks the end of {num_open} of {len(starts)} starts" if num_open else ""
    lacking = lacking_starts(facts)
    lacking_time = _joined(lacking, ends)
    if stage.run == REPORT_RUN and standing.status == "running":
        running_s = missing("s", "this report is being made")
    elif not facts:
        running_s = missing("s", "not started")
    else:
        merged = merge((f.bar.start_unix_s, f.bar.end_unix_s) for f in facts)
        running_s = known(total_s(merged), "s")
    timed = [(start.elapsed_s, start.row) for start in starts if start.elapsed_s is not None]
    longest_s, longest = max(timed, key=itemgetter(0), default=(0.0, None))
    unrecorded = starts_of([fact for fact in facts if fact.record is None])
    failures = []
    for bar in (fact.bar for fact in facts):
        if bar.outcome == "failed":
            name = units.attempt_name(bar.stage, bar.slice_index, bar.attempt, bar.job_id)
            failures.append(f"{name}: {bar.reason or 'no reason was written down'}")
    return StageNumbers(
        name=stage.name,
        run=stage.run,
        is_former=stage.is_former,
        status=standing.status,
        status_reason=standing.reason,
        num_tasks=stage.num_slices,
        slices_per_task=_slices_per_task(facts),
        slices={status: ranges_text(numbers) for status, numbers in standing.slices.items()},
        num_completed=len(standing.slices.get("completed", ())),
        num_failed=len(standing.slices.get("failed", ())),
        num_running=len(standing.slices.get("running", ())),
        num_attempts=len(facts),
        num_retries=len(facts) - len({f.bar.slice_index for f in facts}),
        max_running=max_overlap((f.bar.start_unix_s, f.bar.end_unix_s) for f in facts),
        dependency_wait_median_s=_wait(rows, "submit_unix_s", "eligible_unix_s", np.median),
        queue_wait_median_s=_wait(rows, "eligible_unix_s", "start_unix_s", np.median),
        queue_wait_max_s=_bounded(_wait(rows, "eligible_unix_s", "start_unix_s", np.max), lacking),
        running_s=running_s,
        task_time=_task_time(facts),
        failures=tuple(failures),
        results=stage_results(stage, results),
        longest_job="" if longest is None else longest_job(longest, longest_s, facts),
        longest_s=_bounded(
            _measured((s.elapsed_s for s in starts), max, "s", rows, "ended jobs"), lacking_time
        ),
        gpu_hours=_bounded(_hours(starts, "num_gpus", "GPU h"), lacking_time),
        cpu_hours=_bounded(_hours(starts, "num_cpus", "CPU h"), lacking_time),
        requested_cpus=_asked(rows, "num_cpus", "count"),
        cpu_efficiency=_cpu_efficiency(rows),
        requested_gpus=_asked(rows, "num_gpus", "count"),
        time_limit_s=_asked(rows, "time_limit_s", "s"),
        requested_mem_bytes=_asked(rows, "requested_mem_bytes", "bytes"),
        **_memory(stage, rows, lacking),
        gpu_busy=_gpu_busy(stage, rows),
        unrecorded_gpu_hours=_hours(unrecorded, "num_gpus", "GPU h").value or 0.0,
    )


def lacking_starts(facts: Sequence[AttemptFacts]) -> str:
    """Return why sums and maxima over a stage's starts are lower bounds; empty if they are not."""
    starts = recorded_starts(facts)
    sources = {f.accounting.source for f in facts if f.accounting is not None}
    if not starts.without_row or not sources:
        return ""
    why = " (the local scheduler keeps only a task's last)" if sources == {"local"} else ""
    return f"the accounting lacks {len(starts.without_row)} of {starts.num} starts{why}"


def _slices_per_task(facts: Sequence[AttemptFacts]) -> int:
    slices: dict[JobKey, set[int]] = {}
    for fact in facts:
        slices.setdefault(fact.job, set()).add(fact.bar.slice_index)
    return max((len(task_slices) for task_slices in slices.values()), default=1)


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


def _measured(
    values: Iterable[float | None],
    summary: Summary,
    unit: str,
    rows: Sequence[TaskAccounting],
    what: str,
) -> Quantity:
    """Return the summary of the known values; without one, why the accounting lacks `what`."""
    present = [value for value in values if value is not None]
    if present:
        return known(summary(present), unit)
    return missing(unit, f"the accounting lacks {what}" if rows else _NO_ACCOUNTING)


def _wait(rows: Sequence[TaskAccounting], begin: str, end: str, summary: Summary) -> Quantity:
    times = [(getattr(row, begin), getattr(row, end)) for row in rows]
    waits = [last - first for first, last in times if first is not None and last is not None]
    wait = _measured(waits, summary, "s", rows, "these times")
    return wait if wait.value is None else replace(wait, value=max(0.0, wait.value))


def _bounded(number: Quantity, lacking: str) -> Quantity:
    """Return a sum or maximum over starts of which some are missing."""
    return number if number.value is None else replace(number, at_least=lacking)


def _joined(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))


def _memory(stage: StageInputs, rows: Sequence[TaskAccounting], lacking: str) -> dict[str, Any]:
    """Return the peak memory of one task, and of one node at most."""
    num_tasks = max(1, int(stage.resources.get("tasks_per_node") or 1))
    num_open = sum(row.end_unix_s is None for row in rows)  # peaks are known at the end of starts
    ends = f"{num_open} of {len(rows)} starts have not ended in the accounting" if num_open else ""
    peaks = (_peak_bytes(row, num_tasks) for row in rows)
    largest = _measured(peaks, max, "bytes", rows, _MAX_RSS)
    killed = [row for row in rows if row.state == OUT_OF_MEMORY]
    is_killed = largest.value in [_peak_bytes(row, num_tasks) for row in killed]
    kill = "it was killed at its memory limit" if is_killed else ""
    largest = on_node = _bounded(largest, _joined(lacking, ends, kill))
    if killed:
        on_node = missing("bytes", "a start ran out of memory; its peak is more than was sampled")
    elif any(row.source == "local" for row in rows):
        on_node = missing(
            "bytes", "the local scheduler knows a task's largest process, not all of them together"
        )
    elif largest.value is not None:
        on_node = replace(largest, value=largest.value * num_tasks)
    return {
        "max_rss_bytes": largest,
        "is_largest_killed": is_killed,
        "tasks_per_node": num_tasks,
        "node_mem_bytes": on_node,
    }


def _peak_bytes(row: TaskAccounting, num_tasks: int) -> float | None:
    """Return the peak memory of the largest of a node's tasks, as far as it is known.

    A task that is killed at its limit has often grown since its last sample.
    """
    if row.state != OUT_OF_MEMORY or row.requested_mem_bytes is None:
        return row.max_rss_bytes
    return max(row.max_rss_bytes or 0.0, row.requested_mem_bytes / num_tasks)


def _gpu_busy(stage: StageInputs, rows: Sequence[TaskAccounting]) -> Quantity:
    if rows and not any(row.num_gpus for row in rows):
        return missing("fraction", "no GPU was allocated")
    busy = level_of([(each, each.readings) for each in stage.readings], "gpu_busy_share")
    if busy is None:
        return missing("fraction", "no reading of a node shows how busy a GPU was")
    return known(busy.mean, "fraction")


def _asked(rows: Sequence[TaskAccounting], name: str, unit: str) -> Quantity:
    """Return the request of the newest start that has one: a resume may have changed it."""
    newest_first = sorted(
        rows, key=lambda row: (row.start_unix_s or 0.0, row.submit_unix_s or 0.0), reverse=True
    )
    amounts = (getattr(row, name) for row in newest_first)
    return _measured(amounts, itemgetter(0), unit, rows, _REQUEST_NAMES[name])


def _cpu_efficiency(rows: Sequence[TaskAccounting]) -> Quantity:
    used = allocated = 0.0
    for row in rows:
        elapsed = ended_after_s(row)
        if row.cpu_time_s is not None and row.num_cpus and elapsed:
            used += row.cpu_time_s
            allocated += row.num_cpus * elapsed
    shares = [used / allocated] if allocated else []
    return _measured(shares, itemgetter(0), "fraction", rows, "processor time")


def _hours(starts: Sequence[Start], name: str, unit: str) -> Quantity:
    pairs = [(getattr(start.row, name), start.elapsed_s) for start in starts]
    hours = (
        count * elapsed / 3600
        for count, elapsed in pairs
        if count is not None and elapsed is not None  # a job whose set-up fails may last 0 s
    )
    return _measured(hours, sum, unit, [start.row for start in starts], name)
