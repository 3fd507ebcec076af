"""Runner of the local scheduler: starts tasks, enforces their limits, records how they ended.

`python -m slurm_jobs.schedulers.local_runner RUN_DIR MAX_CPUS`. It ends when nothing runs and
nothing can start. When it dies, the kernel sends SIGTERM to its tasks, and the next runner waits
for them to end, so that no process is left behind. When the run's folder is removed or moved, it
kills its tasks and ends.
"""

from __future__ import annotations

import dataclasses
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import storage_problem
from slurm_jobs.base.processes.process_sessions import (
    adopt_orphans,
    dies_with_parent,
    kill_session,
    memory_of_sessions,
    note_session,
    signal_all,
)
from slurm_jobs.base.processes.process_table import descendants
from slurm_jobs.base.processes.stop_requests import STOP_SIGNAL
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.run_folder.orders import JobOrder, read_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.local import KILL_WAIT_S, LocalBook, settle_left_tasks
from slurm_jobs.schedulers.local_state import (
    ENDED_STATES,
    WAITING,
    LocalJob,
    decide,
    not_started_reason,
    out_of_memory_reason,
)
from slurm_jobs.schedulers.slurm_environment import foreign_to_new_jobs

POLL_S = 0.05
MEMORY_SAMPLE_S = 0.5
_REAP_POLL_S = 0.005
_PATIENCE_S = 1.0
"""For the processes that a task left behind: one may hang in the kernel after its SIGKILL."""
_BURST_FACTOR = 2
_BURST_SLACK_BYTES = 4 * 2**30
"""Allowance for memory that a process reserves but never uses: stacks of 128 threads take 1 GiB."""
_START_VARIABLE = "SLURM_JOBS_LOCAL_START"
"""Environment variable that marks the processes of one start."""


@dataclass(slots=True)
class _RunningTask:
    """Process of a task, and the times at which its limits apply."""

    process: subprocess.Popen[bytes]
    accounting: TaskAccounting
    log: Path
    warn_at_s: float | None
    end_at_s: float
    kill_at_s: float | None = None
    final_state: str | None = None
    """TIMEOUT, CANCELLED or OUT_OF_MEMORY once that is decided."""
    mem_bytes: float = math.inf
    """Limit for the memory of all processes together: `mem_gb` of each node."""
    peak_bytes: float = 0.0
    """Most memory of all processes together in a sample, or of one process that has ended."""
    cpu_time_s: float = 0.0
    """Processor time of the processes that have ended."""
    exit_code: int | None = None
    """Exit code of the batch script, negative after a signal; None while it runs."""
    reason: str = ""


class Runner:
    """Runner of the jobs in one book."""

    def __init__(self, run_dir: Path, *, max_cpus: int) -> None:
        self._paths = RunPaths(run_dir)
        self._book = LocalBook(self._paths.local_dir)
        self._max_cpus = max_cpus
        self._running: dict[str, _RunningTask] = {}
        self._states: dict[str, TaskAccounting] = {}
        self._restarts: dict[str, int] = {}
        self._sampled_s = 0.0
        self._looked_unix_s = 0.0
        """Time of the last check of the processes. A task is eligible when its parent ended,
        however slow the disk was in between."""
        self._die_with_runner = dies_with_parent(signal.SIGTERM)

    def run(self) -> None:
        """Run until nothing is left, or until the run's folder is removed or moved."""
        settle_left_tasks(self._paths, self._book)
        try:
            while not self._is_folder_gone() and self._look():
                time.sleep(POLL_S)
        except OSError:
            if not self._is_folder_gone():
                raise
        if self._is_folder_gone():  # results of tasks would be lost
            self._kill_all()

    def _look(self) -> bool:
        """Record what ended, start what can start, and return whether anything is left."""
        jobs = self._book.jobs()
        for task_id in (task_id for job in jobs for task_id in job.task_ids):
            if task_id not in self._states:
                self._states[task_id] = self._book.state(task_id) or TaskAccounting(
                    job_id=task_id, state="PENDING", source="local"
                )
        self._cancel(jobs, self._book.take_requests("cancel"))
        self._reap()
        self._hold_limits()
        self._hold_memory()
        words = {task_id: task.state for task_id, task in self._states.items()}
        decision = decide(jobs, words, max_cpus=self._max_cpus)
        for job, task_id in decision.start:
            self._start(job, task_id)
        self._note_reasons(decision.reasons)
        for task_id in decision.cancel:
            self._put_cancelled(task_id)
        # If nothing runs and nothing can start, no state will change any more.
        return bool(decision.start or decision.cancel or self._running)

    def _is_folder_gone(self) -> bool:
        try:
            self._paths.run_json.stat()
        except FileNotFoundError:
            return True
        except OSError:  # a file system that does not answer may come back
            return False
        return False

    def _kill_all(self) -> None:
        """Kill the processes of all tasks, also those that left their task's session.

        A process whose parent has been killed becomes a child of this one, see `adopt_orphans`.
        """
        end_s = time.monotonic() + _PATIENCE_S
        while below := descendants(os.getpid()):
            if time.monotonic() > end_s:
                return
            signal_all([process.pid for process in below], signal.SIGKILL)
            time.sleep(_REAP_POLL_S)
            self._reap_children()

    def _put(self, task: TaskAccounting) -> None:
        self._states[task.job_id] = task
        self._book.write_state(task)

    def _note_reasons(self, reasons: Mapping[str, str]) -> None:
        for task_id, reason in reasons.items():
            task = self._states[task_id]
            eligible_unix_s = task.eligible_unix_s
            if eligible_unix_s is None and reason != WAITING:
                eligible_unix_s = self._looked_unix_s  # from now on it only waits for its turn
            waiting = dataclasses.replace(task, reason=reason, eligible_unix_s=eligible_unix_s)
            if waiting != task:
                self._put(waiting)

    def _start(self, job: LocalJob, task_id: str) -> None:
        """Start a task; one that cannot be started fails without affecting the others."""
        now = time.time()
        start_id = f"{job.token}-{task_id}-{now}"
        try:
            order = read_order(self._paths.job_json(job.token))
            process = self._process(order, job, task_id, start_id)
        except (OSError, DamagedFileError) as error:
            failed = dataclasses.replace(
                self._states[task_id],
                state="FAILED",
                reason=not_started_reason(error),
                start_unix_s=None,
                end_unix_s=now,
            )
            self._put(failed)
            return
        resources = order.resources
        limit_s = resources.timeout_min * 60
        lead_s = resources.lead_s
        accounting = dataclasses.replace(
            self._states[task_id],
            state="RUNNING",
            reason="",
            eligible_unix_s=self._states[task_id].eligible_unix_s or self._looked_unix_s,
            start_unix_s=now,
            end_unix_s=None,
            node_list="local",
            num_cpus=job.num_cpus,
            num_gpus=resources.nodes * resources.gpus_per_node,
            requested_mem_bytes=resources.mem_gb * 2**30 if resources.mem_gb is not None else None,
            time_limit_s=limit_s,
        )
        self._running[task_id] = _RunningTask(
            process=process,
            accounting=accounting,
            log=self._paths.job_log(order.stage, task_id),
            warn_at_s=now + limit_s - lead_s if 0 < lead_s < limit_s else None,
            end_at_s=now + limit_s,
            mem_bytes=(resources.mem_gb or math.inf) * 2**30 * resources.nodes,
        )
        session = note_session(process.pid, f"{_START_VARIABLE}={start_id}")
        self._book.write_session(task_id, session)
        self._put(accounting)

    def _process(
        self, order: JobOrder, job: LocalJob, task_id: str, start_id: str
    ) -> subprocess.Popen[bytes]:
        data_limit = _data_limit_bytes(order)

        def prepare() -> None:
            self._die_with_runner()
            if data_limit is not None:
                resource.setrlimit(resource.RLIMIT_DATA, (data_limit, data_limit))

        foreign = foreign_to_new_jobs(os.environ)  # Slurm's variables do not apply here
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in foreign and not name.startswith("SBATCH_")
        }
        environment |= {
            "SLURM_JOBS_LOCAL_JOB_ID": job.job_id,
            "SLURM_JOBS_LOCAL_TASK_ID": task_id,
            "SLURM_JOBS_LOCAL_END_UNIX_S": str(time.time() + order.resources.timeout_min * 60),
            "SLURM_JOBS_LOCAL_RESTART_COUNT": str(self._restarts.get(task_id, 0)),
            _START_VARIABLE: start_id,
        }
        with self._paths.job_log(order.stage, task_id).open("ab") as log:
            try:
                return subprocess.Popen(
                    ["/bin/bash", str(self._paths.batch_script(job.token))],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=order.spec_dir,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
                )
            except OSError as error:
                line = f"slurm-jobs: {not_started_reason(error)}\n"
                log.write(line.encode(errors="surrogateescape"))
                raise

    def _reap(self) -> None:
        """Record the tasks whose batch script has ended.

        Afterwards no running task has been reaped, so that its pid still belongs to it.
        """
        self._looked_unix_s = time.time()
        self._reap_children()
        while ended := self._ended_tasks():
            # Again, because more tasks may have ended and been reaped during a slow clean-up.
            self._looked_unix_s = time.time()
            for task_id, exit_code in ended.items():
                self._clean_up(task_id, exit_code)

    def _ended_tasks(self) -> dict[str, int]:
        """Return the exit codes of the tasks whose batch script was reaped."""
        return {
            task_id: running.exit_code
            for task_id, running in self._running.items()
            if running.exit_code is not None
        }

    def _clean_up(self, task_id: str, exit_code: int) -> None:
        """Kill what an ended task left behind, and record how it ended."""
        running = self._running[task_id]
        end_s = time.monotonic() + _PATIENCE_S
        while kill_session(running.process.pid) and time.monotonic() < end_s:
            time.sleep(_REAP_POLL_S)
            self._reap_children()
        del self._running[task_id]
        request = self._book.requests_dir / f"requeue-{task_id}"
        is_requeued = request.exists()
        request.unlink(missing_ok=True)
        if is_requeued and running.final_state != "CANCELLED":
            self._put_requeued(task_id)
        else:
            self._put_ended(running, exit_code)

    def _reap_children(self) -> None:
        """Reap all children that have ended, and add their use of the machine to their tasks.

        They are batch scripts, and processes of tasks whose own parent did not wait for them. A
        process that left its task's session cannot be attributed to the task.
        """
        by_session = {running.process.pid: running for running in self._running.values()}
        with suppress(ChildProcessError):  # there are no children
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                running = by_session.get(os.getsid(ended.si_pid))
                _, status, usage = os.wait4(ended.si_pid, 0)
                if running is None:
                    continue
                running.cpu_time_s += usage.ru_utime + usage.ru_stime
                running.peak_bytes = max(running.peak_bytes, usage.ru_maxrss * 1024.0)
                if ended.si_pid == running.process.pid:
                    running.exit_code = os.waitstatus_to_exitcode(status)
                    running.process.returncode = running.exit_code

    def _put_ended(self, running: _RunningTask, code: int) -> None:
        ended = dataclasses.replace(
            running.accounting,
            state=running.final_state or ("COMPLETED" if code == 0 else "FAILED"),
            end_unix_s=self._looked_unix_s,
            exit_code=max(code, 0),
            signal=-code if code < 0 else None,
            cpu_time_s=running.cpu_time_s,
            max_rss_bytes=running.peak_bytes,
            reason=running.reason,
        )
        self._put(ended)

    def _put_requeued(self, task_id: str) -> None:
        """Record a task as pending again, without the start that ended, as in sacct."""
        self._restarts[task_id] = self._restarts.get(task_id, 0) + 1
        task = TaskAccounting(
            job_id=task_id,
            state="PENDING",
            source="local",
            reason="Requeued",
            submit_unix_s=self._looked_unix_s,
            eligible_unix_s=self._looked_unix_s,
        )
        self._put(task)

    def _hold_limits(self) -> None:
        now = time.time()
        for running in self._running.values():
            if running.warn_at_s is not None and now >= running.warn_at_s:
                running.warn_at_s = None
                os.kill(running.process.pid, STOP_SIGNAL)  # a Popen's method might reap it
            if now >= running.end_at_s and running.kill_at_s is None:
                self._end(running, "TIMEOUT")
            if running.kill_at_s is not None and now >= running.kill_at_s:
                kill_session(running.process.pid)

    def _hold_memory(self) -> None:
        """End tasks whose processes together use more than `mem_gb`.

        A cgroup would need delegated rights, which few machines grant. Between two samples the
        kernel limits each process, see `_data_limit_bytes`.
        """
        limited = [
            running
            for running in self._running.values()
            if running.mem_bytes < math.inf and running.final_state is None
        ]
        if not limited or time.monotonic() - self._sampled_s < MEMORY_SAMPLE_S:
            return
        self._sampled_s = time.monotonic()
        used_bytes = memory_of_sessions({task.process.pid: task.mem_bytes for task in limited})
        for running in limited:
            pid, used = running.process.pid, used_bytes[running.process.pid]
            running.peak_bytes = max(running.peak_bytes, used)
            if used > running.mem_bytes:
                running.final_state = "OUT_OF_MEMORY"
                running.reason = out_of_memory_reason(used, running.mem_bytes)
                kill_session(pid)
                with running.log.open("ab") as log:
                    log.write(f"slurm-jobs: {running.reason}\n".encode())

    def _end(self, running: _RunningTask, final_state: str) -> None:
        running.final_state = final_state
        running.kill_at_s = time.time() + KILL_WAIT_S
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGTERM)

    def _cancel(self, jobs: list[LocalJob], ids: list[str]) -> None:
        if not ids:
            return
        for job in jobs:
            for task_id in job.task_ids:
                task = self._states[task_id]
                if {job.job_id, task_id}.isdisjoint(ids) or task.state in ENDED_STATES:
                    continue
                if task_id in self._running:
                    self._end(self._running[task_id], "CANCELLED")
                else:
                    self._put_cancelled(task_id)

    def _put_cancelled(self, task_id: str) -> None:
        """Record a task that has not started as cancelled."""
        task = self._states[task_id]
        self._put(dataclasses.replace(task, state="CANCELLED", end_unix_s=time.time()))


def _data_limit_bytes(order: JobOrder) -> int | None:
    """Return the most private memory one process of a task may allocate, None for no limit.

    RLIMIT_DATA counts writable private memory. RLIMIT_AS would also count address space that is
    only reserved. CUDA maps far more than it uses under both, so tasks with GPUs have no limit.
    """
    resources = order.resources
    if resources.mem_gb is None or resources.gpus_per_node:
        return None
    limit = int(resources.mem_gb * 2**30 * resources.nodes * _BURST_FACTOR) + _BURST_SLACK_BYTES
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    return limit if hard == resource.RLIM_INFINITY else min(limit, hard)


def main() -> None:
    """Wait for the lock, then run; a second runner finds no work and ends."""
    run_dir, max_cpus = Path(sys.argv[1]), int(sys.argv[2])
    book = LocalBook(RunPaths(run_dir).local_dir)
    try:
        with book.runner_lock(wait=True) as is_ours:
            assert is_ours
            adopt_orphans()
            Runner(run_dir, max_cpus=max_cpus).run()
    except OSError as error:
        sys.exit(f"slurm-jobs: the local runner ends: {storage_problem(error)}")


if __name__ == "__main__":
    main()
