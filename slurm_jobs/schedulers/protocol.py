"""What a scheduler can do; the rest of the login node's side knows no more of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm_jobs.common.records import DependencyKind, TaskAccounting
from slurm_jobs.run.orders import JobOrder

JobDependencies = Mapping[DependencyKind, Sequence[str]]
"""Ids of jobs (or array elements, `12_3`) that a job comes after, by kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a scheduler said about jobs, and what it could not say."""

    tasks: Mapping[str, TaskAccounting] = field(default_factory=dict)
    """By job id as squeue shows it (`12`, `12_3`)."""
    starts: tuple[TaskAccounting, ...] = ()
    """Of `accounting`: one entry a start, so that a requeued task has several."""
    problems: tuple[str, ...] = ()
    """Sources that could not be asked, each with its reason; their silence proves nothing."""
    notes: tuple[str, ...] = ()
    """What this cluster can never say, such as accounting that is switched off."""
    asked_unix_s: float = 0.0
    """When the question was put: a later change may be missing from the answer."""
    knows_the_living: bool = True
    """Whether a job that is not in `tasks` is certainly neither queued nor running."""
    lagging: Mapping[str, str] = field(default_factory=dict)
    """By job id the state in which accounting still has a job that lives no longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """Which jobs a scheduler is asked about."""

    jobs: Mapping[str, str]
    """Their ids by name. Slurm gives an id again when it has used all, and every cluster counts
    for itself: a job of that id with another name, and a batch script that is not this one's, is
    somebody else's."""
    since_unix_s: float
    """When the first of them was submitted or earlier, by the clock of the host that did so."""
    uids: frozenset[int] = frozenset()
    """Whose they are; empty: the asker's own."""


def is_of(task: TaskAccounting, jobs: Mapping[str, str]) -> bool:
    """Whether what Slurm says of a task is about one of these jobs, given as ids by name."""
    return jobs.get(task.job_name) == task.job_id.partition("_")[0]


class Scheduler(Protocol):
    """Slurm, or this machine."""

    name: str

    def render(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """The exact text of the batch script; nothing is written or submitted."""
        ...

    def submit(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """Queue a job and return its id.

        Raises:
            SchedulerError: it was refused, or the scheduler could not be asked.
        """
        ...

    def start(self) -> None:
        """Called once all jobs of a command are queued."""
        ...

    def settle(self) -> None:
        """Before jobs are planned: see to what has died of the scheduler itself.

        It waits until no process is left of a task that nobody looks after any more.
        """
        ...

    def find(self, job_names: Sequence[str]) -> Mapping[str, str]:
        """Ids of jobs by name, of those that the scheduler knows.

        Raises:
            SchedulerError: the scheduler could not be asked.
        """
        ...

    def query(self, question: Question) -> Answer:
        """State of jobs and their array tasks, in a fixed number of calls."""
        ...

    def accounting(self, question: Question) -> Answer:
        """The same with what was used: memory, processor time; requeued attempts included."""
        ...

    def cancel(self, job_ids: Sequence[str]) -> None:
        """End jobs or array elements, queued or running.

        Raises:
            SchedulerError: the scheduler could not be asked.
        """
        ...
