"""Interface of a scheduler; no other login-node code depends on a particular one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm_jobs.common.records import DependencyKind, TaskAccounting
from slurm_jobs.run.orders import JobOrder

JobDependencies = Mapping[DependencyKind, Sequence[str]]
"""Ids of jobs (or array elements, `12_3`) that a job depends on, by kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Answer of a scheduler about jobs, with the sources that failed."""

    tasks: Mapping[str, TaskAccounting] = field(default_factory=dict)
    """Tasks by job id as squeue shows it (`12`, `12_3`)."""
    starts: tuple[TaskAccounting, ...] = ()
    """One entry for each start, only from `accounting`; a requeued task has several."""
    problems: tuple[str, ...] = ()
    """Sources that could not be queried, each with the reason. A job that they do not report may
    still exist."""
    notes: tuple[str, ...] = ()
    """Information that this cluster never has, for example because accounting is switched off."""
    asked_unix_s: float = 0.0
    """Time of the query: the answer may lack later changes."""
    knows_the_living: bool = True
    """True if a job that is not in `tasks` is certainly neither queued nor running."""
    lagging: Mapping[str, str] = field(default_factory=dict)
    """State that accounting still reports, by job id, for a job that has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """Jobs that a query is about."""

    jobs: Mapping[str, str]
    """Job ids by name. Slurm reuses ids when it has used all, and every cluster counts separately.
    A job with a known id but another name and another batch script belongs to another run."""
    since_unix_s: float
    """Submit time of the first job, or earlier, by the clock of the submitting host."""
    uids: frozenset[int] = frozenset()
    """Owners of the jobs; empty for the current user."""


def is_of(task: TaskAccounting, jobs: Mapping[str, str]) -> bool:
    """Check whether Slurm's entry for a task is about one of these jobs (ids by name)."""
    return jobs.get(task.job_name) == task.job_id.partition("_")[0]


class Scheduler(Protocol):
    """Scheduler of a run: Slurm, or this machine."""

    name: str

    def render(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """Return the exact text of the batch script; write and submit nothing."""
        ...

    def submit(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """Queue a job and return its id.

        Raises:
            SchedulerError: the scheduler refused the job or could not be reached.
        """
        ...

    def start(self) -> None:
        """Start queued jobs; called once after all jobs of a command are queued."""
        ...

    def settle(self) -> None:
        """Recover from a dead part of the scheduler, before jobs are planned.

        Waits until no process remains of a task without a supervisor.
        """
        ...

    def find(self, job_names: Sequence[str]) -> Mapping[str, str]:
        """Return ids by name of those jobs that the scheduler knows.

        Raises:
            SchedulerError: the scheduler could not be reached.
        """
        ...

    def query(self, question: Question) -> Answer:
        """Return the states of jobs and their array tasks, in a fixed number of calls."""
        ...

    def accounting(self, question: Question) -> Answer:
        """Return states and usage (memory, processor time), including requeued attempts."""
        ...

    def cancel(self, job_ids: Sequence[str]) -> None:
        """End jobs or array elements, queued or running.

        Raises:
            SchedulerError: the scheduler could not be reached.
        """
        ...
