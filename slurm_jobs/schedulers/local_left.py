"""Ends what the tasks of a killed runner have left, before anything is done in their place.

The kernel has sent SIGTERM to each task's first process when the runner ended; a stage may
still be saving then, or come to its end, and what a set-up line started has heard of nothing.
"""

from __future__ import annotations

import dataclasses
import signal
import time

from slurm_jobs.common.process import left_of_session, signal_all
from slurm_jobs.common.records import TaskAccounting
from slurm_jobs.run.elements import slices_of_element
from slurm_jobs.run.orders import JobOrder, read_order
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_completion, read_stage_records
from slurm_jobs.schedulers.local_book import LocalBook
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
    end_left_tasks(book)
    for job in book.jobs():
        states = (book.state(task_id) for task_id in job.task_ids)
        left = [task for task in states if task is not None and task.state == "RUNNING"]
        order = read_order(paths.job_json(job.token)) if left else None
        for task in left:
            assert order is not None
            book.write_state(_settled(task, _completed_unix_s(paths, order, task.job_id)))


def _settled(task: TaskAccounting, completed_unix_s: float | None) -> TaskAccounting:
    if completed_unix_s is not None:
        return dataclasses.replace(task, state="COMPLETED", end_unix_s=completed_unix_s)
    return dataclasses.replace(task, state="NODE_FAIL", reason=RUNNER_ENDED, end_unix_s=time.time())


def _completed_unix_s(paths: RunPaths, order: JobOrder, task_id: str) -> float | None:
    """When the last slice of a task was completed by this very job; None if one was not."""
    index = task_id.partition("_")[2]
    slices = order.slices
    if index:
        slices = slices_of_element(order.slices, order.slices_per_task, int(index))
    endings = read_stage_records(paths, order.stage).endings
    done = {
        name.slice_index: name
        for i in slices
        for name in endings.get(i, {}).values()
        if name.token == order.token and name.outcome == "completed"
    }
    if set(done) != set(slices):
        return None
    return max(read_completion(paths, order.stage, name).ended_unix_s for name in done.values())


def end_left_tasks(book: LocalBook) -> None:
    """Wait until nothing lives of the tasks whose end the book does not have, and see to it.

    Call it with the runner's lock held. Processes of another machine, or of this one before it
    was started anew, cannot be seen: they are not waited for.
    """
    sessions = [
        session
        for job in book.jobs()
        for task_id in job.task_ids
        if (task := book.state(task_id)) is not None and task.state not in ENDED_STATES
        if (session := book.session(task_id)) is not None
    ]
    for session in sessions:
        left = left_of_session(session)
        if session.leader_pid not in left:
            signal_all(left, signal.SIGTERM)
    kill_at_s = time.monotonic() + KILL_WAIT_S
    while sessions := [session for session in sessions if left_of_session(session)]:
        for session in sessions if time.monotonic() > kill_at_s else ():
            signal_all(left_of_session(session), signal.SIGKILL)
        time.sleep(_POLL_S)
