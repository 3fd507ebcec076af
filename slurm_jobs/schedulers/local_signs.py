"""When a task of a killed runner was last at work: nobody has seen its end.

What it writes tells: its records, step records and spans, its logs, and the readings of its node,
which a training adds to once a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from slurm_jobs.common.records import TaskAccounting
from slurm_jobs.run.elements import slices_of_element
from slurm_jobs.run.model import StageRecords
from slurm_jobs.run.orders import JobOrder
from slurm_jobs.run.paths import RunPaths


def slices_of_task(order: JobOrder, task_id: str) -> tuple[int, ...]:
    """The slices that a task (`12`, `12_3`) works through."""
    element = task_id.partition("_")[2]
    if not element:
        return order.slices
    return slices_of_element(order.slices, order.slices_per_task, int(element))


def last_sign_unix_s(
    paths: RunPaths, order: JobOrder, records: StageRecords, task: TaskAccounting
) -> float:
    """The latest moment at which one of the task's files was written; its start where none was.

    Args:
        paths: of the run.
        order: of its job.
        records: of its stage; the newest attempt of each of its slices is the task's own.
        task: that has started, and is no more.
    """
    signs = [task.start_unix_s or 0.0]
    for path in _written(paths, order, records, task):
        with suppress(OSError):  # not every attempt comes to write all of them
            signs.append(path.stat().st_mtime)
    return min(max(signs), time.time())


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
