"""When a task of a killed runner was last at work: nobody has seen its end.

What it writes tells: its records, step records and spans, its logs, and the readings of its node,
which a training adds to once a second. The times of a copied run's files are those of the copy: of
such a run what stands in its records counts.
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
"""By how much a file server's clock may differ from that of the machine that writes."""


def slices_of_task(order: JobOrder, task_id: str) -> tuple[int, ...]:
    """The slices that a task (`12`, `12_3`) works through."""
    element = task_id.partition("_")[2]
    if not element:
        return order.slices
    return slices_of_element(order.slices, order.slices_per_task, int(element))


def last_sign_unix_s(
    paths: RunPaths, order: JobOrder, records: StageRecords, task: TaskAccounting
) -> float:
    """The latest moment of which the task's files tell; its start where none does.

    Args:
        paths: of the run.
        order: of its job.
        records: of its stage; the newest attempt of each of its slices is the task's own.
        task: that has started, and is no more.
    """
    signs = [task.start_unix_s or 0.0]
    is_copy = _is_copy(paths)
    for path in _written(paths, order, records, task):
        with suppress(OSError):  # not every attempt comes to write all of them
            signs.append(_recorded_unix_s(path) if is_copy else path.stat().st_mtime)
    return min(max(signs), time.time())


def _is_copy(paths: RunPaths) -> bool:
    """Whether the times of the run's files are others than those at which they were written.

    An entry of the ledger has the moment in it, and is never written again.
    """
    first = entry_path(paths.ledger_dir, 1)
    try:
        written_unix_s = float(read_json(first)["time_unix_s"])
        return abs(first.stat().st_mtime - written_unix_s) > _SKEW_S
    except (OSError, DamagedFileError, KeyError, TypeError, ValueError):
        return False


def _recorded_unix_s(path: Path) -> float:
    """The last moment that stands in a file; 0 where none does."""
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
