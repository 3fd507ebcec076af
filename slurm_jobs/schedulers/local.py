"""Local scheduler: runs the same plan on this machine, with Slurm's semantics.

Submitting writes into a queue folder of the run (`LocalBook`) and returns. A detached runner
process starts the tasks (`local_runner`). Node names are fictitious, one for each requested node.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from slurm_jobs.common.own_python import module_command
from slurm_jobs.common.process import note_process, session_lives
from slurm_jobs.common.records import TaskAccounting
from slurm_jobs.run.orders import JobOrder
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.schedulers.batch_script import sbatch_options, setup_lines, supervisor_command
from slurm_jobs.schedulers.local_book import RUNNER_START_S, LocalBook
from slurm_jobs.schedulers.local_left import (
    KILL_WAIT_S,
    RUNNER_ENDED,
    end_left_tasks,
    end_of_left_task,
    settle_left_tasks,
)
from slurm_jobs.schedulers.local_state import ENDED_STATES, NO_RUNNER
from slurm_jobs.schedulers.protocol import Answer, JobDependencies, Question

STILL_ENDING = (
    "the local runner has ended, and tasks that it left are still ending; `resume` gives them "
    f"{KILL_WAIT_S:.0f} s, then continues"
)


class LocalScheduler:
    """Scheduler that runs jobs on this machine."""

    name = "local"

    def __init__(self, *, run_dir: Path, max_cpus: int | None = None) -> None:
        self._run_dir = run_dir
        self._paths = RunPaths(run_dir)
        self._max_cpus = max_cpus
        self._book = LocalBook(self._paths.local_dir)

    def render(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """Return the batch script; its options are comments here, and the runner enforces them."""
        options = sbatch_options(order, dependencies)
        lines = ["#!/bin/bash", "", "# Parameters (kept by the local scheduler)"]
        lines += [f"# --{key}={value}" for key, value in sorted(options.items())]
        lines += [
            "",
            "# setup",
            *setup_lines(order),
            "",
            "# command",
            supervisor_command(order),
            "",
        ]
        return "\n".join(lines)

    def submit(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """Queue a job in the book."""
        self._book.create()
        self._book.write_starter(note_process(os.getpid()))
        values = {
            "token": order.token,
            "job_name": order.job_name,
            "dependencies": {kind: list(ids) for kind, ids in dependencies.items()},
            "max_running": order.max_running,
            "num_cpus": order.resources.num_ranks * order.resources.cpus_per_task,
        }
        return self._book.add_job(values, order.array_indices if order.is_array else None).job_id

    def start(self) -> None:
        """Start a runner in a new session; it waits for a runner that is still alive."""
        self._book.create()
        num_cpus = str(self._max_cpus or os.cpu_count() or 1)
        command = module_command("slurm_jobs.schedulers.local_runner", self._run_dir, num_cpus)
        with self._book.runner_log.open("ab") as log:
            runner = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        self._book.write_starter(note_process(runner.pid))

    def settle(self) -> None:
        """Without a runner: end the tasks that the last one left, and record their states."""
        with self._book.runner_lock(wait=False) as is_idle:
            if is_idle:
                settle_left_tasks(self._paths, self._book)

    def find(self, job_names: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of jobs by name."""
        return {j.job_name: j.job_id for j in self._book.jobs() if j.job_name in set(job_names)}

    def query(self, question: Question) -> Answer:
        """Return the state of all tasks of these jobs, from the book."""
        starts_before = self._someone_starts()
        tasks = self._read_states(set(question.jobs.values()))
        starts = starts_before or self._someone_starts()  # a runner may have started since
        if starts:
            return Answer(tasks=tasks, asked_unix_s=time.time())
        tasks = {k: self._without_runner(task, starts) for k, task in tasks.items()}
        is_ending = any(task.state == "COMPLETING" for task in tasks.values())
        notes = (STILL_ENDING,) if is_ending else ()
        return Answer(tasks=tasks, notes=notes, asked_unix_s=time.time())

    def _someone_starts(self) -> bool | None:
        """Return whether a runner is alive or about to start; None if that is unknown here.

        The kernel releases the lock as soon as its runner ends, for whatever reason.
        """
        return self._book.has_runner() or self._book.starter_lives()

    def _without_runner(self, task: TaskAccounting, starts: bool | None) -> TaskAccounting:
        """Return a task's state as it is when no runner is alive."""
        if task.state == "RUNNING":
            session = self._book.session(task.job_id)
            if session is not None and session_lives(session):
                return dataclasses.replace(task, state="COMPLETING", reason=RUNNER_ENDED)
            end_unix_s = end_of_left_task(self._paths, self._book, task)
            return dataclasses.replace(
                task, state="NODE_FAIL", reason=RUNNER_ENDED, end_unix_s=end_unix_s
            )
        age_s = time.time() - (task.submit_unix_s or 0.0)
        is_left = starts is not None or age_s > RUNNER_START_S
        if task.state == "PENDING" and is_left:
            return dataclasses.replace(task, reason=NO_RUNNER)
        return task

    def _read_states(self, wanted: set[str]) -> dict[str, TaskAccounting]:
        tasks = {}
        for job in self._book.jobs():
            for task_id in job.task_ids if job.job_id in wanted else ():
                task = self._book.state(task_id)
                if task is not None:
                    tasks[task_id] = task
        return tasks

    def accounting(self, question: Question) -> Answer:
        """Return the same as `query`: the book includes the usage of each task."""
        answer = self.query(question)
        return dataclasses.replace(answer, starts=tuple(answer.tasks.values()))

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Ask the runner to end jobs or tasks; without a runner, end its remaining tasks."""
        for job_id in job_ids:
            self._book.request("cancel", job_id)
        with self._book.runner_lock(wait=False) as is_idle:
            if is_idle:
                living = end_left_tasks(self._book)
                self._cancel_pending(self._book.take_requests("cancel"), living)

    def _cancel_pending(self, ids: Sequence[str], living: Collection[str]) -> None:
        for job in self._book.jobs():
            for task_id in job.task_ids:
                task = self._book.state(task_id)
                if {job.job_id, task_id}.isdisjoint(ids) or task is None:
                    continue
                if task.state not in ENDED_STATES:
                    end_unix_s = None
                    if task.state == "RUNNING":
                        end_unix_s = end_of_left_task(self._paths, self._book, task, living)
                    ended = dataclasses.replace(
                        task, state="CANCELLED", end_unix_s=end_unix_s or time.time()
                    )
                    self._book.write_state(ended)
