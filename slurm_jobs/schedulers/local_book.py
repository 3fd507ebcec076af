"""Queue folder of the local scheduler: jobs, task states, requests to cancel or requeue.

Every entry is a small file under `RUN/local/`. The processes that submit, query and run share
nothing but this folder.
"""

from __future__ import annotations

import dataclasses
import fcntl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from slurm_jobs.common.files import (
    create_once,
    dump_json,
    make_private_dir,
    read_json,
    write_json_atomic,
)
from slurm_jobs.common.process import NotedProcess, Session, process_lives
from slurm_jobs.common.records import TaskAccounting, accounting_from_json, record_to_json
from slurm_jobs.schedulers.local_state import LocalJob

RUNNER_START_S = 15.0
"""Seconds that a runner may need to start: after a submit, or if its process cannot be seen from
here."""
_LOOK_S = 0.001
"""Seconds after which a check for a living runner has surely ended."""


@dataclasses.dataclass(frozen=True, slots=True)
class LocalBook:
    """Jobs, states and requests in `folder`."""

    folder: Path

    @property
    def jobs_dir(self) -> Path:
        """Folder of queued jobs by id."""
        return self.folder / "jobs"

    @property
    def states_dir(self) -> Path:
        """Folder of task states."""
        return self.folder / "states"

    @property
    def sessions_dir(self) -> Path:
        """Folder of the process sessions of started tasks."""
        return self.folder / "sessions"

    @property
    def requests_dir(self) -> Path:
        """Folder of requests by name: `cancel-12_3`, `requeue-12_3`."""
        return self.folder / "requests"

    @property
    def lock_file(self) -> Path:
        """File that a living runner locks; flock is reliable, because only this node uses it."""
        return self.folder / "runner.lock"

    @property
    def starter_file(self) -> Path:
        """File that names the process that starts tasks: the newest runner, or its submitter."""
        return self.folder / "starter.json"

    @property
    def runner_log(self) -> Path:
        """Log of the runner's own output."""
        return self.folder / "runner.log"

    def create(self) -> None:
        """Create the folders."""
        for folder in (self.jobs_dir, self.states_dir, self.sessions_dir, self.requests_dir):
            make_private_dir(folder)

    def add_job(self, values: Mapping[str, Any], slices: Sequence[int] | None) -> LocalJob:
        """Queue a job under the next free id, its tasks pending."""
        self.create()
        number = 1 + max((int(path.stem) for path in self.jobs_dir.glob("*.json")), default=0)
        while True:
            job_id = str(number)
            task_ids = [job_id] if slices is None else [f"{job_id}_{i}" for i in slices]
            data = {
                **values,
                "job_id": job_id,
                "task_ids": task_ids,
                "submitted_unix_s": time.time(),
            }
            if create_once(self.jobs_dir / f"{number:06d}.json", dump_json(data).encode()):
                break
            number += 1
        job = _job(data)
        for task_id in job.task_ids:
            task = TaskAccounting(
                job_id=task_id,
                state="PENDING",
                source="local",
                submit_unix_s=job.submitted_unix_s,
                eligible_unix_s=None if job.dependencies else job.submitted_unix_s,
            )
            # Written only once: a quick runner may already have updated it.
            create_once(self._state_path(task_id), dump_json(_state(task)).encode())
        return job

    def jobs(self) -> list[LocalJob]:
        """Return all jobs, oldest first."""
        return [_job(read_json(path)) for path in sorted(self.jobs_dir.glob("*.json"))]

    def _state_path(self, task_id: str) -> Path:
        return self.states_dir / f"{task_id}.json"

    def write_state(self, task: TaskAccounting) -> None:
        """Replace the state of a task."""
        write_json_atomic(self._state_path(task.job_id), _state(task))

    def state(self, task_id: str) -> TaskAccounting | None:
        """Return the state of a task; None if its job is still being queued."""
        try:
            return accounting_from_json(read_json(self._state_path(task_id)))
        except FileNotFoundError:
            return None

    def write_session(self, task_id: str, session: Session) -> None:
        """Record a task's processes, for a later runner."""
        write_json_atomic(self.sessions_dir / f"{task_id}.json", dataclasses.asdict(session))

    def session(self, task_id: str) -> Session | None:
        """Return the processes of a task's latest start; None if none were recorded."""
        try:
            return Session(**read_json(self.sessions_dir / f"{task_id}.json"))
        except FileNotFoundError:
            return None

    def request(self, verb: str, job_or_task_id: str) -> None:
        """Ask the runner to cancel or requeue."""
        make_private_dir(self.requests_dir)
        create_once(self.requests_dir / f"{verb}-{job_or_task_id}", b"")

    def take_requests(self, verb: str) -> list[str]:
        """Return and remove all open requests of a kind."""
        taken = []
        for path in self.requests_dir.glob(f"{verb}-*"):
            taken.append(path.name.removeprefix(f"{verb}-"))
            path.unlink()
        return taken

    def has_runner(self) -> bool:
        """Check whether a runner is alive; needs no write permission."""
        try:
            with self.lock_file.open() as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def write_starter(self, process: NotedProcess) -> None:
        """Record the process that starts tasks from now on."""
        write_json_atomic(self.starter_file, dataclasses.asdict(process))

    def starter_lives(self) -> bool | None:
        """Return whether the process that starts tasks is alive; None if it is unknown here.

        A submitting process, such as a notebook, may live for days without starting tasks.
        """
        try:
            age_s = time.time() - self.starter_file.stat().st_mtime
            lives = process_lives(NotedProcess(**read_json(self.starter_file)))
        except FileNotFoundError:  # a book of an earlier version
            return None
        return lives and age_s < RUNNER_START_S

    @contextmanager
    def runner_lock(self, *, wait: bool) -> Iterator[bool]:
        """Hold the runner's lock; yields False if it is held elsewhere and `wait` is False."""
        self.create()
        with self.lock_file.open("a") as stream:
            if wait:
                fcntl.flock(stream, fcntl.LOCK_EX)
            elif not _locked_but_by_lookers(stream):
                yield False
                return
            yield True


def _locked_but_by_lookers(stream: IO[str]) -> bool:
    """Take a lock unless a runner holds it; wait for processes that only check it."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # Processes that check the lock (`has_runner`) hold it for microseconds. This check must be
        # as short.
        fcntl.flock(stream, fcntl.LOCK_UN)
        time.sleep(_LOOK_S)


def _job(values: Mapping[str, Any]) -> LocalJob:
    return LocalJob(**{**values, "task_ids": tuple(values["task_ids"])})


def _state(task: TaskAccounting) -> dict[str, Any]:
    """Return a task as JSON values, without the name, which is always empty here.

    A runner of an earlier version may still be alive. It does not know the name and would crash
    with all of its tasks.
    """
    values = record_to_json(task)
    del values["job_name"]
    return values
