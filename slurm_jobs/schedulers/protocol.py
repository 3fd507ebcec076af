"""Interface of a scheduler; no other login-node code depends on a particular one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from slurm_jobs.formats.config import DependencyKind
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.orders import JobOrder

JobDependencies = Mapping[DependencyKind, Sequence[JobKey]]
"""Jobs or array elements that a job depends on, by kind."""


Doubt = Literal["controller silent", "controller forgot"]
"""Why it is open whether a job lives, see `agreement`.

`controller silent`: squeue does not list it, and the controller did not answer. `controller
forgot`: the accounting has it alive, and the controller does not know it.
"""


class SourceProblem(NamedTuple):
    """Source that could not be queried."""

    source: str
    """`squeue`, `sacct`, `scontrol`, or another cluster."""
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Answer of a scheduler about jobs, with the sources that failed."""

    tasks: Mapping[JobKey, TaskAccounting] = field(default_factory=dict)
    """Newest state of each job or array task."""
    starts: tuple[TaskAccounting, ...] = ()
    """One entry for each start, only from `accounting`; a requeued task has several."""
    problems: tuple[SourceProblem, ...] = ()
    """A job that these sources do not report may still exist."""
    notes: tuple[str, ...] = ()
    """What else a user must know: information that this cluster never has, for example because
    accounting is switched off, and jobs that only the accounting has alive."""
    asked_unix_s: float = 0.0
    """Time of the query: the answer may lack later changes."""
    knows_the_living: bool = True
    """True if a job that is not in `tasks` is certainly neither queued nor running."""
    lagging: Mapping[JobKey, str] = field(default_factory=dict)
    """State that accounting still reports for a job that has ended."""
    doubts: Mapping[JobKey, Doubt] = field(default_factory=dict)
    """Jobs or array elements of which it is open whether they live. An array stands for those of
    its elements that no source lists."""

    @property
    def problem_texts(self) -> tuple[str, ...]:
        """Return each source that failed with its reason, for people."""
        return tuple(map(str, self.problems))


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
    open_jobs: Mapping[str, float] = field(default_factory=dict)
    """Submission times of the jobs whose work is not proven complete, by name."""
    acts: bool = False
    """True if the answer decides which jobs are replaced or cancelled: then the controller is
    asked about each open job."""


def is_of(task: TaskAccounting, jobs: Mapping[str, str]) -> bool:
    """Check whether Slurm's entry for a task is about one of these jobs (ids by name)."""
    return jobs.get(task.job_name) == task.key.job.job_id


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

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """End jobs or array elements, queued or running.

        Raises:
            SchedulerError: the scheduler could not be reached.
        """
        ...
