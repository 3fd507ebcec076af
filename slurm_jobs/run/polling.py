"""Polls of a run's status until the run has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from slurm_jobs.base.errors import FileError, InputError
from slurm_jobs.status.run_status import RunStatus
from slurm_jobs.status.slice_status import Status

View = TypeVar("View")

INTERVAL_S = {"local": 0.5, "slurm": 5.0}
"""Seconds between two polls; all users share Slurm's controller."""
PATIENCE_S = {"local": 2.0, "slurm": 60.0}
"""Seconds without living jobs and without proof of the outcome before a run counts as ended.

A record may reach this machine late (an NFS client takes a listing for fresh for up to `acdirmax`,
60 s), accounting lags, and a `submit` may be about to queue the next job.
"""
GOING: tuple[Status, ...] = ("running", "waiting")


def views_until_over(
    view: Callable[[], View],
    status_of: Callable[[View], RunStatus],
    with_problem: Callable[[View, str], View],
    scheduler: str,
) -> Iterator[View]:
    """Yield one status after another; the last one is of the ended run.

    While the run's files cannot be read (the file server is unreachable, a handle is stale), each
    is the last known status, with that problem.

    Raises:
        OSError: the files cannot be read at the first poll, or for `PATIENCE_S` at a later one.
    """
    read_s = going_s = time.monotonic()
    last: View | None = None
    while True:
        try:
            seen = last = view()
            read_s = time.monotonic()
        except (OSError, InputError) as error:  # the second if its `run.json` is missing
            if last is None or time.monotonic() - read_s >= PATIENCE_S[scheduler]:
                if last is None or isinstance(error, OSError):
                    raise
                message = f"the run's files: {error}"
                raise FileError(message) from error
            seen = with_problem(last, f"the run's files: {error}")
        status, now_s = status_of(seen), time.monotonic()
        if _lives(status) or not status.knows_the_living:
            going_s = now_s
        yield seen
        if is_over(status, open_for_s=now_s - going_s, patience_s=PATIENCE_S[scheduler]):
            return
        time.sleep(INTERVAL_S[scheduler])


def in_doubt(status: RunStatus, problem: str) -> RunStatus:
    """Return the status with a problem added: jobs that were alive may still be alive."""
    return replace(status, problems=(*status.problems, problem), knows_the_living=False)


def is_over(status: RunStatus, *, open_for_s: float, patience_s: float) -> bool:
    """Check whether the run has ended: it is complete, or no job is queued or running.

    A failed query about living jobs proves nothing. If no job is alive but the outcome is open,
    this must stay so for `patience_s`.
    """
    if status.status == "completed":
        return True
    if not status.knows_the_living or _lives(status):
        return False
    return status.status in {"failed", "cancelled", "stranded"} or open_for_s >= patience_s


def _lives(status: RunStatus) -> bool:
    return any(
        part.status in GOING and part.job_id is not None
        for stage in status.stages
        for part in stage.slices
    )
