"""A run of one array of any size, whose slices ended in every way: `python -m ... NUM DIR`.

The records are those that a supervisor writes, the rows those of Slurm. Called as a script, it
writes the report, too, so that its page can be looked at.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    TaskAccounting,
)
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.report.stage import build_and_write, make_report
from slurm_jobs.report.values.report_model import RunReport
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.orders import name_of_job
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.slice_status import Status
from tests.slurm_jobs.report.fabricate_run import write_plan

End = Literal["completed", "retried", "failed", "timeout", "scancelled", "running", "waiting"]
"""`retried` completes at the second attempt, in place."""
STATUS_OF: dict[End, Status] = {
    "completed": "completed",
    "retried": "completed",
    "failed": "failed",
    "timeout": "failed",
    "scancelled": "cancelled",
    "running": "running",
    "waiting": "waiting",
}
_STATES = {
    "failed": "FAILED",
    "timeout": "TIMEOUT",
    "scancelled": "CANCELLED",
    "running": "RUNNING",
}
STARTUP_S = 4.0
"""From the start of a job to that of its supervisor."""
_AT_ONCE = 100
_TASK_S = 240.0
_STAGE, _TOKEN, _JOB_ID, _NAME = "embed", "t12", "12", "captions"


def mixed_ends(num: int) -> tuple[End, ...]:
    """Return ends of all kinds, mostly completed; of three slices: completed, failed, running."""
    if num <= 3:
        return ("completed", "failed", "running")[:num]
    rare: dict[int, End] = {3: "failed", 7: "retried", 11: "scancelled", 17: "timeout"}
    num_open = max(2, num // 25)
    ends: list[End] = [rare.get(i % 40, "completed") for i in range(num - 2 * num_open)]
    return (*ends, *["running"] * num_open, *["waiting"] * num_open)


@dataclass(frozen=True, kw_only=True)
class ArrayRun:
    """A run folder, and what Slurm says of its jobs."""

    paths: RunPaths
    accounting: tuple[TaskAccounting, ...]
    answer: Answer


def fabricate_array(run_dir: Path, ends: Sequence[End], *, queue_s: float = 0.0) -> ArrayRun:
    """Write the run folder; its first jobs are eligible `queue_s` before their start."""
    paths = RunPaths(run_dir)
    num_waves = 1 + (len(ends) - 1) // _AT_ONCE
    created = time.time() - (num_waves + 0.5) * _TASK_S - queue_s
    _write_run(paths, len(ends), created)
    rows = []
    for index, end in enumerate(ends):
        eligible = created + 5 + index // _AT_ONCE * _TASK_S
        row = _row(index, end, submit=created + 5, start=eligible + queue_s)
        rows.append(replace(row, eligible_unix_s=eligible))
        _write_records(paths, index, end, row)
    accounting = tuple(row for row in rows if row.start_unix_s is not None)
    tasks = {row.key: row for row in rows}
    return ArrayRun(
        paths=paths, accounting=accounting, answer=Answer(tasks=tasks, asked_unix_s=time.time())
    )


def report_on_ends(folder: Path, ends: Sequence[End], *, queue_s: float = 0.0) -> RunReport:
    """Return the report of such a run, which is made in the folder."""
    run = fabricate_array(folder / "run", ends, queue_s=queue_s)
    return make_report(run.paths, run.accounting, answer=run.answer)


def _write_run(paths: RunPaths, num_slices: int, created: float) -> None:
    resources = {"nodes": 1, "tasks_per_node": 1, "cpus_per_task": 4, "mem_gb": 8}
    stage = {
        "run": "captions:embed",
        "after": {},
        "array": {"num_slices": num_slices, "max_running": None},
        "resources": {**resources, "timeout_min": 60},
        "config": {},
    }
    run = {
        "run_id": "20261129-101500-captions-4f1c",
        "name": _NAME,
        "created_unix_s": created,
        "submitted_by": "ada",
        "host": "login-1",
        "scheduler": "slurm",
        "version": "0.1.0",
        "spec_file": "/home/ada/captions.yaml",
    }
    _write(paths.run_json, run)
    _write(paths.resolved_spec, {"name": _NAME, "stages": {_STAGE: stage}})
    write_plan(paths, 1, {_STAGE: stage})
    intent = {
        "stage": _STAGE,
        "slices": ranges_text(range(num_slices)),
        "is_array": True,
        "fingerprint": "f1ng3r",
        "job_name": name_of_job(_NAME, _STAGE, _TOKEN),
        "base_attempts": {},
    }
    append_entry(paths.ledger_dir, "intent", _TOKEN, intent)
    append_entry(paths.ledger_dir, "submitted", _TOKEN, {"job_id": _JOB_ID})


def _row(index: int, end: End, *, submit: float, start: float) -> TaskAccounting:
    """Return Slurm's row of a slice's job, without the moment at which it was eligible."""
    lasts_s = _TASK_S * (0.6 + 0.3 * (index * 7 % 11) / 10)
    row = TaskAccounting(
        job_id=f"{_JOB_ID}_{index}",
        job_name=name_of_job(_NAME, _STAGE, _TOKEN),
        state="PENDING",
        source="squeue",
        reason="Resources",
        submit_unix_s=submit,
        num_cpus=4,
        num_gpus=0,
        requested_mem_bytes=8e9,
        time_limit_s=3600,
    )
    if end == "waiting":
        return row
    state = _STATES.get(end, "COMPLETED")
    row = replace(row, state=state, reason="", start_unix_s=start, node_list=f"cpu-{index % 50}")
    if end == "running":
        return row
    return replace(
        row,
        source="sacct",
        end_unix_s=start + STARTUP_S + lasts_s,
        cpu_time_s=3 * lasts_s,
        max_rss_bytes=5e9 + 1e6 * (index % 100),
    )


def _write_records(paths: RunPaths, index: int, end: End, row: TaskAccounting) -> None:
    """Write the attempts of a slice, and their ends, as its supervisor does."""
    if row.start_unix_s is None:
        return
    start = row.start_unix_s + STARTUP_S
    if end == "retried":
        _write_attempt(paths, index, 1, row, start)
        _write_end(paths, index, 1, (start, start + 20), "failed", reason="OSError: stale handle")
        _write_attempt(paths, index, 2, row, start + 21)
        assert row.end_unix_s is not None
        _write_end(paths, index, 2, (start + 21, row.end_unix_s), "completed")
        return
    _write_attempt(paths, index, 1, row, start)
    if row.end_unix_s is None or end == "timeout":  # Slurm killed it with its supervisor
        return
    times = (start, row.end_unix_s)
    if end == "failed":
        _write_end(paths, index, 1, times, "failed", reason="ValueError: row 17 has no caption")
    elif end == "scancelled":
        reason = "After SIGTERM from outside (time limit, cancel or preemption): rank 0 ended"
        _write_end(paths, index, 1, times, "failed", reason=reason, signal=15)
    else:
        _write_end(paths, index, 1, times, "completed")


def _write_attempt(
    paths: RunPaths, index: int, attempt: int, row: TaskAccounting, start: float
) -> None:
    record = AttemptRecord(
        stage=_STAGE,
        slice_index=index,
        attempt=attempt,
        job_id=row.job_id,
        token=_TOKEN,
        fingerprint="f1ng3r",
        started_unix_s=start,
        node_names=(row.node_list,),
        host=row.node_list,
        pid=4711,
        num_ranks=1,
        scheduler="slurm",
        restart=0,
    )
    _write(paths.attempt(_STAGE, index, attempt), record_to_json(record))


def _write_end(
    paths: RunPaths,
    index: int,
    attempt: int,
    times: tuple[float, float],
    outcome: Literal["completed", "failed"],
    *,
    reason: str = "",
    signal: int | None = None,
) -> None:
    record = CompletionRecord(
        stage=_STAGE,
        slice_index=index,
        attempt=attempt,
        job_id=f"{_JOB_ID}_{index}",
        token=_TOKEN,
        outcome=outcome,
        fingerprint="f1ng3r",
        started_unix_s=times[0],
        ended_unix_s=times[1],
        exit_code=0 if outcome == "completed" else 1,
        signal=signal,
        reason=reason,
    )
    name = CompletionName(index, attempt, _TOKEN, outcome)
    _write(paths.completion(_STAGE, name), record_to_json(record))


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def main() -> None:
    """Write a run of so many slices into a folder, with its report."""
    num, folder = int(sys.argv[1]), Path(sys.argv[2])
    run = fabricate_array(folder, mixed_ends(num), queue_s=30 if num > 3 else 0)
    build_and_write(run.paths, run.accounting, answer=run.answer)
    print(run.paths.report_html)


if __name__ == "__main__":
    main()
