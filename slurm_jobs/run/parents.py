"""Jobs that a slow command has submitted, and checks that later jobs can still wait for them.

Slurm removes a job that can never start, and forgets an ended job after `MinJobAge` (300 s unless
the site lowers it). A dependency on a forgotten job counts as met, so a job that is submitted later
would start without its input.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping

from slurm_jobs.common.errors import SchedulerError
from slurm_jobs.common.records import DependencyKind, TaskAccounting
from slurm_jobs.plan import Plan, PlannedJob
from slurm_jobs.run.connections import SubmittedJob
from slurm_jobs.run.elements import array_indices, slices_of_element
from slurm_jobs.run.orders import name_of_job
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_stage_records
from slurm_jobs.schedulers.protocol import Answer, JobDependencies, Question, Scheduler
from slurm_jobs.schedulers.states import LIVING_STATES

TRUSTED_S = 30.0
"""Seconds for which a job's state counts as current, after its submission or the last query.

Own choice: a tenth of Slurm's default for `MinJobAge`, and longer than an undisturbed submit takes,
so that such a submit needs no query.
"""

REMEMBERED_S = 120.0
"""Seconds after its end for which Slurm is assumed to know a job. A job that waits for it can then
never start, and Slurm removes that job too, so jobs that depend on it with `afterany` are still
submitted. Own choice: well below the default of `MinJobAge`."""

_NEED_SUCCESS: frozenset[DependencyKind] = frozenset({"afterok", "aftercorr"})
"""Kinds that require success. A job that Slurm has forgotten has ended, so `afterany` is rightly
met."""


class Parents:
    """Jobs that a command submitted, with the time until which the state of each is trusted."""

    def __init__(self, paths: RunPaths, plan: Plan, scheduler: Scheduler) -> None:
        self._paths = paths
        self._plan = plan
        self._scheduler = scheduler
        self._jobs: dict[str, SubmittedJob] = {}
        self._since_unix_s = time.time()
        self._added_s: dict[str, float] = {}
        self._trusted_until_s: dict[str, float] = {}

    def add(self, job: SubmittedJob) -> None:
        """Add a job that Slurm has just accepted."""
        self._jobs[job.job_id] = job
        self._added_s[job.job_id] = time.time()
        self._trusted_until_s[job.job_id] = time.time() + TRUSTED_S

    def refuse_gone(self, job: PlannedJob, dependencies: JobDependencies) -> None:
        """Raise if a job would wait for the success of one that is gone or has failed.

        Raises:
            SchedulerError: it would; the message names the stage and the command that continues.
        """
        due = self._due(i for kind in _NEED_SUCCESS for i in dependencies.get(kind, ()))
        if not due or self._scheduler.name == "local":  # its queue keeps all jobs
            return
        answer = self._scheduler.query(
            Question(
                jobs={self._name(self._jobs[job_id]): job_id for job_id in due},
                since_unix_s=self._since_unix_s,
            )
        )
        for job_id in due:
            # Without an answer the id counts, because Slurm accepted the job.
            age_s = time.time() - self._added_s[job_id]
            why = _why_gone(self._paths, self._jobs[job_id], answer, age_s)
            if answer.knows_the_living and why:
                raise SchedulerError(self._message(job, self._jobs[job_id], why))
            self._trusted_until_s[job_id] = time.time() + TRUSTED_S

    def _due(self, job_ids: Iterable[str]) -> list[str]:
        now = time.time()
        return [i for i in dict.fromkeys(job_ids) if self._trusted_until_s.get(i, now) < now]

    def _name(self, job: SubmittedJob) -> str:
        return name_of_job(self._plan.name, job.stage, job.token)

    def _message(self, job: PlannedJob, parent: SubmittedJob, why: str) -> str:
        return (
            f"`{job.stage}` comes after `{parent.stage}`, whose job {parent.job_id} {why} while "
            "this command was running, so the new job cannot wait for it. No further job was "
            "submitted; jobs submitted before stay queued. To continue: "
            f"slurm-jobs resume {self._paths.run_dir}"
        )


def _why_gone(paths: RunPaths, job: SubmittedJob, answer: Answer, age_s: float) -> str:
    """Return why a job can no longer be waited for; empty if it is alive or completed.

    A job that Slurm has forgotten completed if its records show it.

    Args:
        paths: of the run.
        job: a submitted job.
        answer: of the scheduler.
        age_s: of the job, by this machine's clock.
    """
    tasks = {i: t for i, t in answer.tasks.items() if i.partition("_")[0] == job.job_id}
    states = {i: task.state for i, task in tasks.items()}
    ended = [t for t in tasks.values() if t.state not in LIVING_STATES and t.state != "COMPLETED"]
    forgotten_by_now = [
        t for t in ended if t.source != "squeue" and age_s - _duration_s(t) > REMEMBERED_S
    ]
    if forgotten_by_now:
        return f"ended as {forgotten_by_now[0].state}"
    forgotten = _slices_without(job, states)
    if not forgotten or forgotten <= _completed(paths, job):
        return ""
    return "is gone"


def _duration_s(task: TaskAccounting) -> float:
    """Return the seconds from submission to end, both by Slurm's clock; -inf if unknown."""
    if task.submit_unix_s is None or task.end_unix_s is None:
        return -math.inf
    return task.end_unix_s - task.submit_unix_s


def _slices_without(job: SubmittedJob, states: Mapping[str, str]) -> frozenset[int]:
    """Return the slices for which Slurm knows neither the job nor the array element."""
    if job.job_id in states:
        return frozenset()
    slices, per_task = job.planned.slices, job.planned.slices_per_task
    missing = [
        slices_of_element(slices, per_task, element)
        for element in array_indices(slices, per_task)
        if f"{job.job_id}_{element}" not in states
    ]
    return frozenset(index for several in missing for index in several)


def _completed(paths: RunPaths, job: SubmittedJob) -> frozenset[int]:
    endings = read_stage_records(paths, job.stage).endings
    return frozenset(
        index
        for index, by_attempt in endings.items()
        if any(e.token == job.token and e.outcome == "completed" for e in by_attempt.values())
    )
