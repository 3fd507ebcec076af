"""Ends what the tasks of a killed runner have left, before anything is done in their place.

The kernel has sent SIGTERM to each task's first process when the runner ended; a stage may
still be saving then, and what a set-up line started has heard of nothing.
"""

from __future__ import annotations

import signal
import time

from slurm_jobs.common.process import left_of_session, signal_all
from slurm_jobs.schedulers.local_book import LocalBook
from slurm_jobs.schedulers.local_state import ENDED_STATES

KILL_WAIT_S = 10.0
"""From SIGTERM to SIGKILL, as Slurm's KillWait."""
_POLL_S = 0.05


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
