"""Local scheduler: runs the same plan on this machine, with Slurm's semantics.

Submitting writes into a queue folder of the run (`LocalBook`) and returns. A detached runner
process starts the tasks (`local_runner`). Node names are fictitious, one for each requested node.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import (
    create_once,
    damaged,
    dump_json,
    make_private_dir,
    read_json,
    write_json_atomic,
)
from slurm_jobs.base.processes.process_sessions import (
    NotedProcess,
    Session,
    left_of_session,
    note_process,
    process_lives,
    session_lives,
    signal_all,
)
from slurm_jobs.base.processes.python_commands import module_command
from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.formats.records.attempt_records import TaskAccounting, accounting_from_json
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.timings.step_records import read_spans, read_steps
from slurm_jobs.formats.timings.system_readings import read_system
from slurm_jobs.run_folder.ledger import entry_path
from slurm_jobs.run_folder.orders import JobOrder, read_order, slices_of_element
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_completion, read_stage_records
from slurm_jobs.run_folder.run_values import StageRecords
from slurm_jobs.schedulers.batch_script import sbatch_options, setup_lines, supervisor_command
from slurm_jobs.schedulers.local_state import ENDED_STATES, NO_RUNNER, LocalJob
from slurm_jobs.schedulers.protocol import Answer, JobDependencies, Question

RUNNER_START_S = 15.0
"""Seconds that a runner may need to start: after a submit, or if its process cannot be seen from
here."""
_LOOK_S = 0.001
"""Seconds after which a check for a living runner has surely ended."""


@dataclasses.dataclass(frozen=True, slots=True)
class LocalBook:
    """Queue folder: jobs, task states, requests to cancel or requeue, each a small file.

    The processes that submit, query and run share nothing but this folder.
    """

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
        jobs = []
        for path in sorted(self.jobs_dir.glob("*.json")):
            try:
                jobs.append(_job(read_json(path)))
            except (TypeError, KeyError) as error:
                raise damaged(path, error) from error
        return jobs

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
        requests = []
        for path in self.requests_dir.glob(f"{verb}-*"):
            requests.append(path.name.removeprefix(f"{verb}-"))
            path.unlink()
        return requests

    def has_runner(self) -> bool:
        """Check whether a runner is alive; needs no write permission."""
        try:
            with open_regular(self.lock_file) as stream:
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
            elif not _lock_unless_running(stream):
                yield False
                return
            yield True


def _lock_unless_running(stream: IO[str]) -> bool:
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
    """Return a task as JSON values, without the name, which its job has.

    A runner of an earlier version may still be alive. It does not know the name and would crash
    with all of its tasks.
    """
    values: dict[str, Any] = record_to_json(task)
    del values["job_name"]
    return values


_SKEW_S = 30.0
"""Largest difference between the clocks of a file server and of the machine that writes."""


def slices_of_task(order: JobOrder, task_id: str) -> tuple[int, ...]:
    """Return the slices of a task (`12`, `12_3`)."""
    element = task_id.partition("_")[2]
    if not element:
        return order.slices
    return slices_of_element(order.slices, order.slices_per_task, int(element))


def last_sign_unix_s(
    paths: RunPaths, order: JobOrder, records: StageRecords, task: TaskAccounting
) -> float:
    """Return the last sign of life of a task whose runner was killed, so that nothing saw its end.

    It is the latest time of its records, step records, spans, logs and node readings (a training
    appends one each second); its start time if there is none.

    Args:
        paths: of the run.
        order: of its job.
        records: of its stage; the newest attempt of each of its slices is the task's own.
        task: that has started and ended.
    """
    stage = order.stage
    files = [paths.job_log(stage, task.job_id)]
    for index in slices_of_task(order, task.job_id):
        for attempt in records.attempts.get(index, ())[-1:]:
            files.append(paths.attempt(stage, index, attempt))
            files += paths.task_dir(stage, index, attempt).glob("*")
            files += paths.timing_dir(stage, index, attempt).glob("*")
            ranks = range(order.resources.num_ranks)
            files += [paths.rank_log(stage, index, attempt, rank) for rank in ranks]
            if attempt in (endings := records.endings.get(index, {})):
                files.append(paths.completion(stage, endings[attempt]))
    # File times of a copied run are those of the copy, so only times inside its records count. A
    # ledger entry contains its own time and is never rewritten.
    first, is_copy = entry_path(paths.ledger_dir, 1), False
    with suppress(OSError, DamagedFileError, KeyError, TypeError, ValueError):
        written_unix_s = float(read_json(first)["time_unix_s"])
        is_copy = abs(first.stat().st_mtime - written_unix_s) > _SKEW_S
    signs = [task.start_unix_s or 0.0]
    for path in files:
        with suppress(OSError):  # an attempt may end before it has written all of these files
            signs.append(_recorded_unix_s(path) if is_copy else path.stat().st_mtime)
    return min(max(signs), time.time())


def _recorded_unix_s(path: Path) -> float:
    """Return the last time recorded in a file; 0 if there is none."""
    try:
        if path.name.endswith(".steps"):
            last = read_steps(path).steps[-1:]
            return float((last["start_unix_s"] + last["step_s"]).max(initial=0.0))
        if path.name.endswith(".spans.jsonl"):
            spans = read_spans(path)[0]
            return max((s["start_unix_s"] + s["duration_s"] for s in spans), default=0.0)
        if path.name.endswith(".system"):
            return float(read_system(path).readings["unix_s"].max(initial=0.0))
        if path.suffix == ".json":
            values = read_json(path)
            return float(values.get("ended_unix_s") or values.get("started_unix_s") or 0.0)
    except (ValueError, TypeError, AttributeError, DamagedFileError):  # damaged: no sign
        pass
    return 0.0


KILL_WAIT_S = 10.0
"""Seconds from SIGTERM to SIGKILL, as Slurm's KillWait."""
RUNNER_ENDED = "the local runner ended while the task ran"
_POLL_S = 0.05


def settle_left_tasks(paths: RunPaths, book: LocalBook) -> None:
    """Wait for all processes of a killed runner's tasks to end, and record the tasks' states.

    The kernel sends SIGTERM to the first process of each task when the runner ends. A stage may
    still be saving or finishing then, and processes that a set-up line started receive no signal.
    A task that completed in the meantime counts as complete, so that its dependents may start. The
    caller holds the runner's lock.
    """
    living = end_left_tasks(book)
    for job in book.jobs():
        states = (book.state(task_id) for task_id in job.task_ids)
        left = [task for task in states if task is not None and task.state == "RUNNING"]
        if not left:
            continue
        order = read_order(paths.job_json(job.token))
        records = read_stage_records(paths, order.stage)
        for task in left:
            completed_unix_s = _completed_unix_s(paths, order, records, task.job_id)
            if completed_unix_s is not None:
                ended = dataclasses.replace(task, state="COMPLETED", end_unix_s=completed_unix_s)
            else:
                end_unix_s = _end_unix_s(paths, order, records, task, living)
                ended = dataclasses.replace(
                    task, state="NODE_FAIL", reason=RUNNER_ENDED, end_unix_s=end_unix_s
                )
            book.write_state(ended)


def end_of_left_task(
    paths: RunPaths, book: LocalBook, task: TaskAccounting, living: Collection[str] = ()
) -> float | None:
    """Return when a task that a killed runner left ended; None if its job cannot be read.

    `living` holds the ids of the tasks that `end_left_tasks` has just ended.
    """
    token = next((job.token for job in book.jobs() if task.job_id in job.task_ids), None)
    if token is None:
        return None
    try:
        order = read_order(paths.job_json(token))
        return _end_unix_s(paths, order, read_stage_records(paths, order.stage), task, living)
    except (OSError, DamagedFileError):
        return None


def _end_unix_s(
    paths: RunPaths,
    order: JobOrder,
    records: StageRecords,
    task: TaskAccounting,
    living: Collection[str],
) -> float:
    """Return the current time for a task that has just ended, else its last sign of life.

    A resume may come a day after the kill, and that day is not part of the task's run time.
    """
    if task.job_id in living:
        return time.time()
    return last_sign_unix_s(paths, order, records, task)


def _completed_unix_s(
    paths: RunPaths, order: JobOrder, records: StageRecords, task_id: str
) -> float | None:
    """Return when this job completed the last slice of a task; None if it did not."""
    slices = slices_of_task(order, task_id)
    done = {
        name.slice_index: name
        for i in slices
        for name in records.endings.get(i, {}).values()
        if name.token == order.token and name.outcome == "completed"
    }
    if set(done) != set(slices):
        return None
    return max(read_completion(paths, order.stage, name).ended_unix_s for name in done.values())


def end_left_tasks(book: LocalBook) -> frozenset[str]:
    """Wait until the processes of all tasks without a recorded end have ended, and end them.

    The caller holds the runner's lock. Processes of another machine, or from before a reboot,
    cannot be seen and are not waited for.

    Returns:
        Ids of the tasks whose first process was still alive. Processes that a set-up line left
            behind may outlive their task by days.
    """
    sessions = {
        task_id: session
        for job in book.jobs()
        for task_id in job.task_ids
        if (task := book.state(task_id)) is not None and task.state not in ENDED_STATES
        if (session := book.session(task_id)) is not None
    }
    living = set()
    for task_id, session in sessions.items():
        left = left_of_session(session)
        if session.leader_pid in left:
            living.add(task_id)
        else:
            signal_all(left, signal.SIGTERM)
    kill_at_s, open_sessions = time.monotonic() + KILL_WAIT_S, list(sessions.values())
    while open_sessions := [session for session in open_sessions if left_of_session(session)]:
        for session in open_sessions if time.monotonic() > kill_at_s else ():
            signal_all(left_of_session(session), signal.SIGKILL)
        time.sleep(_POLL_S)
    return frozenset(living)


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
            "dependencies": {
                kind: [job.job_id for job in jobs] for kind, jobs in dependencies.items()
            },
            "max_running": order.max_running,
            "num_cpus": order.resources.num_ranks * order.resources.cpus_per_task,
        }
        return self._book.add_job(values, order.array_indices if order.is_array else None).job_id

    def start(self) -> None:
        """Start a runner in a new session; it waits for a runner that is still alive."""
        self._book.create()
        num_cpus = str(self._max_cpus or os.cpu_count() or 1)
        command = module_command("slurm_jobs.schedulers.local_runner", self._run_dir, num_cpus)
        with (self._book.folder / "runner.log").open("ab") as log:
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
        tasks: dict[JobKey, TaskAccounting] = {}
        for job in self._book.jobs():
            if question.jobs.get(job.job_name) != job.job_id:
                continue
            for task_id in job.task_ids:
                task = self._book.state(task_id)
                if task is not None:
                    named = dataclasses.replace(task, job_name=job.job_name)
                    tasks[named.key] = named
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

    def accounting(self, question: Question) -> Answer:
        """Return the same as `query`: the book includes the usage of each task."""
        answer = self.query(question)
        return dataclasses.replace(answer, starts=tuple(answer.tasks.values()))

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """Ask the runner to end jobs or tasks; without a runner, end its remaining tasks."""
        for job in jobs:
            self._book.request("cancel", job.job_id)
        with self._book.runner_lock(wait=False) as is_idle:
            if is_idle:
                living = end_left_tasks(self._book)
                ids = self._book.take_requests("cancel")
                for queued in self._book.jobs():
                    for task_id in queued.task_ids:
                        if not {queued.job_id, task_id}.isdisjoint(ids):
                            self._cancel_task(task_id, living)

    def _cancel_task(self, task_id: str, living: Collection[str]) -> None:
        task = self._book.state(task_id)
        if task is None or task.state in ENDED_STATES:
            return
        end_unix_s = None
        if task.state == "RUNNING":
            end_unix_s = end_of_left_task(self._paths, self._book, task, living)
        ended = dataclasses.replace(task, state="CANCELLED", end_unix_s=end_unix_s or time.time())
        self._book.write_state(ended)
