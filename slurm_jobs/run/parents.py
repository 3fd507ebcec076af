"""Jobs that others wait for, and whether Slurm still remembers them.

Slurm removes a job that can never start, and forgets an ended job after `MinJobAge` (300 s
unless the site lowers it). A dependency on a forgotten job counts as met, so a job that a slow
command submits later would start without its input.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.formats.config import DependencyKind
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.plan.planned import PlannedJob
from slurm_jobs.plan.stage_dependencies import Slices
from slurm_jobs.run_folder.orders import array_indices, slices_of_element
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_stage_records
from slurm_jobs.schedulers.job_states import LIVING_STATES
from slurm_jobs.schedulers.protocol import Answer, JobDependencies, Question, Scheduler


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmittedJob:
    """Job that the scheduler accepted."""

    planned: PlannedJob
    token: str
    job: JobKey

    @property
    def job_id(self) -> str:
        """Return the job's id, for display."""
        return self.job.job_id

    @property
    def stage(self) -> str:
        """Return the name of the job's stage."""
        return self.planned.stage

    @property
    def num_tasks(self) -> int:
        """Return the number of array elements; 1 without an array."""
        return self.planned.num_tasks


TRUSTED_S = 30.0
"""Seconds for which a job's state counts as current, after its submission or the last query.

Own choice: a tenth of Slurm's default for `MinJobAge`, and longer than an undisturbed submit takes,
so that such a submit needs no query.
"""

REMEMBERED_S = 120.0
"""Seconds after its end for which Slurm is assumed to know a job. Within this time a child of a
failed job may still be submitted: Slurm sees the failure and removes the child, which satisfies an
`afterany` on the child. Own choice: well below the default of `MinJobAge`."""

_NEED_SUCCESS: tuple[DependencyKind, ...] = ("afterok", "aftercorr")
"""Kinds that require success. A job that Slurm has forgotten has ended, so `afterany` is rightly
met."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parent:
    """Job, or element of an array, that others wait for."""

    stage: str
    token: str
    job: JobKey
    slices_by_task: Mapping[str, Slices]
    """Slices by id of the array element, or of the whole job."""


class Parents:
    """Jobs that others wait for, with the time until which the state of each is trusted.

    These are the jobs that a command submitted, and those that continue unchanged.
    """

    def __init__(
        self,
        paths: RunPaths,
        scheduler: Scheduler,
        active: Mapping[str, Mapping[JobKey, Slices]] | None = None,
    ) -> None:
        self._paths = paths
        self._scheduler = scheduler
        self._jobs: dict[JobKey, _Parent] = {}
        self._since_unix_s = time.time()
        self._added_s: dict[JobKey, float] = {}
        self._trusted_until_s: dict[JobKey, float] = {}
        for stage, jobs in (active or {}).items():
            for job, slices in jobs.items():
                token = job.name.rpartition(".")[2]
                self._add(
                    _Parent(stage=stage, token=token, job=job, slices_by_task={job.job_id: slices})
                )

    def add(self, job: SubmittedJob) -> None:
        """Add a job that Slurm has just accepted."""
        slices, per_task = job.planned.slices, job.planned.slices_per_task
        slices_by_task = {
            f"{job.job_id}_{element}": frozenset(slices_of_element(slices, per_task, element))
            for element in array_indices(slices, per_task)
        }
        self._add(
            _Parent(stage=job.stage, token=job.token, job=job.job, slices_by_task=slices_by_task)
        )

    def _add(self, parent: _Parent) -> None:
        self._jobs[parent.job] = parent
        self._added_s[parent.job] = time.time()
        self._trusted_until_s[parent.job] = time.time() + TRUSTED_S

    def refuse_gone(self, job: PlannedJob, dependencies: JobDependencies) -> None:
        """Raise if a job would wait for the success of one that is gone or has failed.

        Raises:
            SchedulerError: it would; the message names the stage and the command that continues.
        """
        if self._scheduler.name == "local":  # its queue keeps all jobs
            return
        now_s = time.time()
        awaited = dict.fromkeys(i for kind in _NEED_SUCCESS for i in dependencies.get(kind, ()))
        due = [self._jobs[i] for i in awaited if self._trusted_until_s.get(i, now_s) < now_s]
        if not due:
            return
        answer = self._scheduler.query(
            Question(
                jobs={parent.job.name: parent.job.job.job_id for parent in due},
                open_jobs={parent.job.name: self._added_s[parent.job] for parent in due},
                acts=True,
                since_unix_s=self._since_unix_s,
            )
        )
        for parent in due:
            # Without an answer the id counts, because Slurm accepted the job.
            is_doubted = any(parent.job in {key, key.job} for key in answer.doubts)
            is_known = answer.knows_the_living and not is_doubted
            why = self._why_gone(parent, answer) if is_known else ""
            if why:
                message = (
                    f"`{job.stage}` comes after `{parent.stage}`, whose job {parent.job.job_id} "
                    f"{why} while this command was running, so the new job cannot wait for it. "
                    "No further job was submitted; jobs submitted before stay queued. To continue: "
                    f"slurm-jobs resume {self._paths.run_dir}"
                )
                raise SchedulerError(message)
            self._trusted_until_s[parent.job] = time.time() + TRUSTED_S

    def _why_gone(self, parent: _Parent, answer: Answer) -> str:
        """Return why a job can no longer be waited for; empty if it is alive or completed.

        A job that Slurm has forgotten completed if its records show it.
        """
        age_s = time.time() - self._added_s[parent.job]
        tasks = {k: task for k, task in answer.tasks.items() if parent.job in {k, k.job}}
        for task in tasks.values():
            has_ended = task.state not in LIVING_STATES and task.state != "COMPLETED"
            duration_s = -math.inf  # both times are by Slurm's clock
            if task.submit_unix_s is not None and task.end_unix_s is not None:
                duration_s = task.end_unix_s - task.submit_unix_s
            is_remembered = task.source in {"squeue", "scontrol"}
            if has_ended and not is_remembered and age_s - duration_s > REMEMBERED_S:
                return f"ended as {task.state}"
        jobs_of_tasks = {key.job for key in tasks}
        forgotten: set[int] = set()
        for task_id, slices in parent.slices_by_task.items():
            key = JobKey(parent.job.name, task_id)
            if key not in tasks and key.job not in tasks and key not in jobs_of_tasks:
                forgotten |= slices
        if not forgotten:
            return ""
        completed = {
            index
            for index, by_attempt in read_stage_records(self._paths, parent.stage).endings.items()
            if any(
                e.token == parent.token and e.outcome == "completed" for e in by_attempt.values()
            )
        }
        return "" if forgotten <= completed else "is gone"
