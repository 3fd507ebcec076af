"""Last sign of life of a task whose runner was killed, so that no process saw its end.

Signs are the times of its records, step records, spans, logs and node readings (a training appends
one each second). File times of a copied run are those of the copy, so only times inside its records
count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from slurm_jobs.common.errors import DamagedFileError
from slurm_jobs.common.files import read_json
from slurm_jobs.common.records import TaskAccounting
from slurm_jobs.common.system_readings import read_system
from slurm_jobs.common.timings import read_spans, read_steps
from slurm_jobs.run.elements import slices_of_element
from slurm_jobs.run.ledger import entry_path
from slurm_jobs.run.model import StageRecords
from slurm_jobs.run.orders import JobOrder
from slurm_jobs.run.paths import RunPaths

_SKEW_S = 30.0
"""Largest difference between the clocks of a file server and of the machine that writes."""


def slices_of_task(order: JobOrder, task_id: str) -> tuple[int, ...]:
    """Return the slices of a task (`12`, `12_3`)."""
    element = task_id.partition("_")[2]
    if not element:
        return order.slices
    return slices_of_element(order.slices, order.slices_per_task, int(element))


def last_sign_unix_s(
    paths: RunPaths, order: JobOrder, records: StageRecords, task: TaskAccounting
) -> float:
    """Return the latest time in a task's files; its start time if there is none.

    Args:
        paths: of the run.
        order: of its job.
        records: of its stage; the newest attempt of each of its slices is the task's own.
        task: that has started and ended.
    """
    signs = [task.start_unix_s or 0.0]
    is_copy = _is_copy(paths)
    for path in _written(paths, order, records, task):
        with suppress(OSError):  # an attempt may end before it has written all of these files
            signs.append(_recorded_unix_s(path) if is_copy else path.stat().st_mtime)
    return min(max(signs), time.time())


def _is_copy(paths: RunPaths) -> bool:
    """Check whether the run's files have other modification times than when they were written.

    A ledger entry contains its own time and is never rewritten.
    """
    first = entry_path(paths.ledger_dir, 1)
    try:
        written_unix_s = float(read_json(first)["time_unix_s"])
        return abs(first.stat().st_mtime - written_unix_s) > _SKEW_S
    except (OSError, DamagedFileError, KeyError, TypeError, ValueError):
        return False


def _recorded_unix_s(path: Path) -> float:
    """Return the last time recorded in a file; 0 if there is none."""
    try:
        if path.name.endswith(".steps"):
            last = read_steps(path).steps[-1:]
            return float((last["start_unix_s"] + last["step_s"]).max(initial=0.0))
        if path.name.endswith(".spans.jsonl"):
            spans = read_spans(path)[0]
            return max((s["start_unix_s"] + s["duration_s"] for s in spans), default=0.0)
        if path.name.endswith(".system"):
            return float(read_system(path).readings["unix_s"].max(initial=0.0))
        if path.suffix == ".json":
            values = read_json(path)
            return float(values.get("ended_unix_s") or values.get("started_unix_s") or 0.0)
    except (ValueError, TypeError, AttributeError, DamagedFileError):  # damaged: no sign
        pass
    return 0.0


def _written(
    paths: RunPaths, order: JobOrder, records: StageRecords, task: TaskAccounting
) -> Iterator[Path]:
    stage = order.stage
    yield paths.job_log(stage, task.job_id)
    for index in slices_of_task(order, task.job_id):
        for attempt in records.attempts.get(index, ())[-1:]:
            yield paths.attempt(stage, index, attempt)
            yield from paths.task_dir(stage, index, attempt).glob("*")
            yield from paths.timing_dir(stage, index, attempt).glob("*")
            for rank in range(order.resources.num_ranks):
                yield paths.rank_log(stage, index, attempt, rank)
            if attempt in (endings := records.endings.get(index, {})):
                yield paths.completion(stage, endings[attempt])
