"""Decisions of the local scheduler: tasks that may start, and tasks that never can. PURE.

The rules are Slurm's: a job waits for its dependencies, and an array runs at most `max_running`
tasks at once. A task whose dependencies can no longer be met ends as cancelled, as with
`--kill-on-invalid-dep=yes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.schedulers.job_states import NEVER

ENDED_STATES = frozenset(
    {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"}
)
WAITING = "Dependency"
"""Slurm's reason for "not eligible"; with any other reason a task waits for its turn."""
THROTTLED = "JobArrayTaskLimit"
NO_ROOM = "Resources"
NO_RUNNER = "NoRunner"
"""Our own reason, for which Slurm has no word: no runner is left to start the task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalJob:
    """Job as it was queued."""

    job_id: str
    token: str
    job_name: str
    task_ids: tuple[str, ...]
    """`12_3` for array tasks, `12` for a plain job."""
    dependencies: Mapping[str, Sequence[str]]
    """Job ids or task ids by kind."""
    max_running: int | None
    num_cpus: int
    """Cores that one task requests."""
    submitted_unix_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """Next actions of the runner."""

    start: tuple[tuple[LocalJob, str], ...]
    """Jobs and their tasks to start, in order."""
    reasons: Mapping[str, str]
    """Reason of each other pending task."""
    cancel: tuple[str, ...] = ()
    """Pending tasks that can never start."""


def decide(jobs: Sequence[LocalJob], states: Mapping[str, str], *, max_cpus: int) -> Decision:
    """Decide which tasks start now, given the state of every task; older jobs first.

    A task that requests more than `max_cpus` runs when nothing else does.
    """
    used = sum(job.num_cpus for job in jobs for task in job.task_ids if states[task] == "RUNNING")
    start: list[tuple[LocalJob, str]] = []
    reasons: dict[str, str] = {}
    cancel: list[str] = []
    members = {job.job_id: job.task_ids for job in jobs}
    for job in jobs:
        pending = [task for task in job.task_ids if states[task] == "PENDING"]
        if not pending:
            continue
        blocked = dependency_reason(job, members, states)
        beside = element_reasons(job, pending, states)
        running = sum(states[task] == "RUNNING" for task in job.task_ids)
        for task in pending:
            held = NEVER if NEVER in {blocked, beside.get(task)} else blocked or beside.get(task)
            if held == NEVER:
                cancel.append(task)
            elif held is not None:
                reasons[task] = held
            elif job.max_running is not None and running >= job.max_running:
                reasons[task] = THROTTLED
            elif used and used + job.num_cpus > max_cpus:
                reasons[task] = NO_ROOM
            else:
                start.append((job, task))
                used += job.num_cpus
                running += 1
    return Decision(start=tuple(start), reasons=reasons, cancel=tuple(cancel))


def dependency_reason(
    job: LocalJob, members: Mapping[str, Sequence[str]], states: Mapping[str, str]
) -> str | None:
    """Return the reason why dependencies hold back a whole job; None if they are satisfied."""
    reasons = {
        _reason(kind, [states[task] for task in members.get(parent, (parent,))])
        for kind, ids in job.dependencies.items()
        if kind != "aftercorr"
        for parent in ids
    }
    return next((reason for reason in (NEVER, WAITING) if reason in reasons), None)


def element_reasons(
    job: LocalJob, tasks: Iterable[str], states: Mapping[str, str]
) -> dict[str, str]:
    """Return the array elements that `aftercorr` holds back, with reasons.

    Each element waits for the element with the same index in the other array. As in Slurm, an
    element without such a counterpart never starts.
    """
    reasons: dict[str, str] = {}
    for parent in job.dependencies.get("aftercorr", ()):
        for task in tasks:
            state = states.get(f"{parent}_{task.partition('_')[2]}", "FAILED")
            reason = _reason("afterok", [state])
            if reason is not None and reasons.get(task) != NEVER:
                reasons[task] = reason
    return reasons


def _reason(kind: str, parents: Sequence[str]) -> str | None:
    """Return why a dependency on a job's tasks or a single task holds back; None if it is met.

    As in Slurm, nothing is decided before the last task has ended: a job that comes after a job
    which can never start, whatever becomes of that one, would otherwise start too early.
    """
    if any(state not in ENDED_STATES for state in parents):
        return WAITING
    succeeded = all(state == "COMPLETED" for state in parents)
    if (kind == "afterok" and not succeeded) or (kind == "afternotok" and succeeded):
        return NEVER
    return None


def out_of_memory_reason(held_bytes: float, limit_bytes: float) -> str:
    """Return a message that a task exceeded its memory limit, and what to do."""
    held_gb = math.ceil(held_bytes / 2**30 * 100) / 100  # round up, to show more than the limit
    return (
        f"out of memory: its processes held {held_gb:.2f} GB, and mem_gb allows "
        f"{limit_bytes / 2**30:g}; raise resources.mem_gb"
    )


def not_started_reason(error: OSError | DamagedFileError) -> str:
    """Return a message that a task could not be started, and what to do."""
    what = str(error)
    if isinstance(error, OSError) and error.filename:
        what = f"{error.filename}: {error.strerror}"
    return f"it could not be started: {what}; fix that, then `resume` runs it"
