"""Clean-up of tasks that a killed runner left, before new ones start.

The kernel sends SIGTERM to the first process of each task when the runner ends. A stage may still
be saving or finishing then, and processes that a set-up line started receive no signal.
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
"""Seconds from SIGTERM to SIGKILL, as Slurm's KillWait."""
RUNNER_ENDED = "the local runner ended while the task ran"
_POLL_S = 0.05


def settle_left_tasks(paths: RunPaths, book: LocalBook) -> None:
    """Wait for all processes of a killed runner's tasks to end, and record the tasks' states.

    A task that completed in the meantime counts as complete, so that its dependents may start. The
    caller holds the runner's lock.
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
    """Return when a task that a killed runner left ended; None if its job cannot be read.

    `living` holds the ids of the tasks that `end_left_tasks` has just ended.
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
    """Return the current time for a task that has just ended, else its last sign of life.

    A resume may come a day after the kill, and that day is not part of the task's run time.
    """
    if task.job_id in living:
        return time.time()
    return last_sign_unix_s(paths, order, records, task)


def _completed_unix_s(
    paths: RunPaths, order: JobOrder, records: StageRecords, task_id: str
) -> float | None:
    """Return when this job completed the last slice of a task; None if it did not."""
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
    """Wait until the processes of all tasks without a recorded end have ended, and end them.

    The caller holds the runner's lock. Processes of another machine, or from before a reboot,
    cannot be seen and are not waited for.

    Returns:
        Ids of the tasks whose first process was still alive. Processes that a set-up line left
            behind may outlive their task by days.
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
