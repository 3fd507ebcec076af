"""Ends what the tasks of a killed runner have left, before anything is done in their place.

The kernel has sent SIGTERM to each task's first process when the runner ended; a stage may
still be saving then, or come to its end, and what a set-up line started has heard of nothing.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Collection

from slurm_jobs.common.errors import DamagedFileError
from slurm_jobs.common.process import left_of_session, signal_all
from slurm_jobs.common.records import TaskAccounting
from slurm_jobs.run.model import StageRecords
from slurm_jobs.run.orders import JobOrder, read_order
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_completion, read_stage_records
from slurm_jobs.schedulers.local_book import LocalBook
from slurm_jobs.schedulers.local_signs import last_sign_unix_s, slices_of_task
from slurm_jobs.schedulers.local_state import ENDED_STATES

KILL_WAIT_S = 10.0
"""From SIGTERM to SIGKILL, as Slurm's KillWait."""
RUNNER_ENDED = "the local runner ended while the task ran"
_POLL_S = 0.05


def settle_left_tasks(paths: RunPaths, book: LocalBook) -> None:
    """Have all that a killed runner left end, and write into the book how: by its records.

    What completed after all is complete, so that what comes after it may start. Call it with
    the runner's lock held.
    """
    living = end_left_tasks(book)
    for job in book.jobs():
        states = (book.state(task_id) for task_id in job.task_ids)
        left = [task for task in states if task is not None and task.state == "RUNNING"]
        if not left:
            continue
        order = read_order(paths.job_json(job.token))
        records = read_stage_records(paths, order.stage)
        for task in left:
            completed_unix_s = _completed_unix_s(paths, order, records, task.job_id)
            if completed_unix_s is not None:
                ended = dataclasses.replace(task, state="COMPLETED", end_unix_s=completed_unix_s)
            else:
                end_unix_s = _end_unix_s(paths, order, records, task, living)
                ended = dataclasses.replace(
                    task, state="NODE_FAIL", reason=RUNNER_ENDED, end_unix_s=end_unix_s
                )
            book.write_state(ended)


def end_of_left_task(
    paths: RunPaths, book: LocalBook, task: TaskAccounting, living: Collection[str] = ()
) -> float | None:
    """When a task that a killed runner left ended; None where its job cannot be read.

    `living` are those that `end_left_tasks` has ended just now.
    """
    token = next((job.token for job in book.jobs() if task.job_id in job.task_ids), None)
    if token is None:
        return None
    try:
        order = read_order(paths.job_json(token))
        return _end_unix_s(paths, order, read_stage_records(paths, order.stage), task, living)
    except (OSError, DamagedFileError):
        return None


def _end_unix_s(
    paths: RunPaths,
    order: JobOrder,
    records: StageRecords,
    task: TaskAccounting,
    living: Collection[str],
) -> float:
    """Now, of a task that has been seen to end; else its last sign of life.

    A resume may come a day after the kill: that day is no time of the task's.
    """
    if task.job_id in living:
        return time.time()
    return last_sign_unix_s(paths, order, records, task)


def _completed_unix_s(
    paths: RunPaths, order: JobOrder, records: StageRecords, task_id: str
) -> float | None:
    """When the last slice of a task was completed by this very job; None if one was not."""
    slices = slices_of_task(order, task_id)
    done = {
        name.slice_index: name
        for i in slices
        for name in records.endings.get(i, {}).values()
        if name.token == order.token and name.outcome == "completed"
    }
    if set(done) != set(slices):
        return None
    return max(read_completion(paths, order.stage, name).ended_unix_s for name in done.values())


def end_left_tasks(book: LocalBook) -> frozenset[str]:
    """Wait until nothing lives of the tasks whose end the book does not have, and see to it.

    Call it with the runner's lock held. Processes of another machine, or of this one before it
    was started anew, cannot be seen: they are not waited for.

    Returns:
        Ids of the tasks whose first process still lived. What a set-up line left behind may
        outlive its task by days.
    """
    sessions = {
        task_id: session
        for job in book.jobs()
        for task_id in job.task_ids
        if (task := book.state(task_id)) is not None and task.state not in ENDED_STATES
        if (session := book.session(task_id)) is not None
    }
    living = set()
    for task_id, session in sessions.items():
        left = left_of_session(session)
        if session.leader_pid in left:
            living.add(task_id)
        else:
            signal_all(left, signal.SIGTERM)
    kill_at_s, open_sessions = time.monotonic() + KILL_WAIT_S, list(sessions.values())
    while open_sessions := [session for session in open_sessions if left_of_session(session)]:
        for session in open_sessions if time.monotonic() > kill_at_s else ():
            signal_all(left_of_session(session), signal.SIGKILL)
        time.sleep(_POLL_S)
    return frozenset(living)
