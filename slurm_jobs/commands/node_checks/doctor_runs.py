"""Runs of `slurm-jobs doctor`: submitted, answered, waited for, and always cleaned up.

They are in a hidden folder next to the user's runs, so that none of them is the newest run.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from slurm_jobs.base.errors import FileError, InputError, SchedulerError, SlurmJobsError
from slurm_jobs.base.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.base.processes.signal_handlers import handling
from slurm_jobs.base.processes.stop_requests import STOP_SIGNAL
from slurm_jobs.base.regular_files import read_text
from slurm_jobs.commands.cancel import cancel
from slurm_jobs.commands.submit import submit
from slurm_jobs.formats.node_records.doctor_facts import SIGNAL_NAME, answer_name, hello_name
from slurm_jobs.run.observe import status_of
from slurm_jobs.run.polling import in_doubt, views_until_over
from slurm_jobs.run_folder.paths import RunPaths, is_run
from slurm_jobs.run_folder.run_records import read_attempt, read_completion, read_meta
from slurm_jobs.schedulers.slurm_commands import ask
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.status.run_status import RunStatus

Say = Callable[[str], None]
_POLL_S = 0.1
KEPT_S = 86_400.0
"""Runs of a check are useful for investigating a failure, but not for long."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NotCancelledError(SchedulerError):
    """Run of a check that could not be cancelled, so that its jobs may still run."""

    def __init__(self, cause: Exception, run_dir: Path) -> None:
        self.cause = cause
        self.remedy = f"its jobs may still run: slurm-jobs cancel {run_dir}"
        super().__init__(f"{cause}\n{self.remedy}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """Finished run of one stage."""

    run_dir: Path
    stage: str
    status: RunStatus | None
    """None if no status was available."""
    gave_up: str = ""
    """Reason why it was cancelled before its end."""

    @property
    def is_completed(self) -> bool:
        """True if both the scheduler and the records show it as completed."""
        return self.status is not None and self.status.status == "completed"

    @property
    def logs_command(self) -> str:
        """Command that shows the job's own log if there was no attempt: a set-up line failed."""
        begun = self.status is not None and self.status.stages[0].slices[0].attempt > 0
        which = "--failed" if begun else "--supervisor"
        return f"slurm-jobs logs {shlex.quote(str(self.run_dir))} {self.stage} {which}"

    def job_log(self) -> str:
        """Return the output of set-up and supervisor; empty if the job has not started."""
        logs = sorted(RunPaths(self.run_dir).logs_dir(self.stage).glob("slurm-*.log"))
        return "\n".join(read_text(path, errors="replace") for path in logs)


def run_to_its_end(loaded: LoadedSpec, *, wait_s: float, say: Say, num_nodes: int = 0) -> Ended:
    """Submit a spec of one stage and wait; cancel active jobs if the wait ends early.

    The run is cancelled if none of its jobs has been running for `wait_s`. For a node check, the
    requests of its `num_nodes` nodes are answered.

    Raises:
        SpecError: the cluster could never run it; SchedulerError: it was refused.
        KeyboardInterrupt: the user ended it; its jobs are cancelled.
    """
    ((name, _),) = loaded.spec.stages.items()
    folder = hidden_runs_dir(loaded)
    before = set(folder.glob("*"))
    spec = loaded.spec.model_copy(update={"runs_dir": str(folder)})
    say(f"{name}: submitting a job")
    try:
        with _interrupts_held():
            run_dir = submit(replace(loaded, spec=spec), is_remembered=False).paths.run_dir
    except BaseException:  # a failed submit may have left a job
        for run_dir in folder.glob("*"):
            if run_dir not in before and is_run(run_dir):
                with suppress(InputError):  # without a plan it has no job
                    _cancel(run_dir)
        raise
    answering = Answering(run_dir, num_nodes) if num_nodes else None
    status: RunStatus | None = None
    gave_up = ""
    idle_since_s = time.monotonic()
    try:
        for status in views_until_over(
            lambda: status_of(run_dir, fresh=False),
            lambda status: status,
            in_doubt,
            read_meta(RunPaths(run_dir)).scheduler,
        ):
            part = status.stages[0].slices[0]
            job = f"job {part.job_id}" if part.job_id else "its job"
            why = f": {part.reason or part.state}" if status.status == "waiting" else ""
            say(f"{name}: {job} is {status.status}{why}")
            if status.status == "running":
                idle_since_s = time.monotonic()
            if time.monotonic() - idle_since_s > wait_s:
                _cancel(run_dir)
                waited = f"after {wait_s / 60:g} min it was cancelled"
                gave_up = f"{reason_of(run_dir, status)}; {waited}"
                break
    except BaseException:
        _cancel(run_dir)
        raise
    finally:
        if answering is not None:
            answering.end()
    return Ended(run_dir=run_dir, stage=name, status=status, gave_up=gave_up)


def hidden_runs_dir(loaded: LoadedSpec) -> Path:
    """Return the folder of this user's `doctor` runs, hidden in that of the user's runs."""
    return Path(loaded.spec.runs_dir) / f".doctor-{os.getuid()}"


def reason_of(run_dir: Path, status: RunStatus) -> str:
    """Return the reason for the status of the only stage: from its record, else the scheduler."""
    stage = status.stages[0]
    part = stage.slices[0]
    if part.ending is not None:
        with suppress(OSError):
            record = read_completion(RunPaths(run_dir), stage.stage.name, part.ending)
            if record.reason:
                return record.full_reason
    problems = "; ".join(status.problems)
    return part.reason or part.state or problems or part.status


def _cancel(run_dir: Path) -> None:
    """Cancel, even if the user interrupts again.

    Raises:
        NotCancelledError: cancelling failed.
    """
    with _interrupts_held():
        try:
            cancel(run_dir)
        except (SchedulerError, FileError) as error:
            raise NotCancelledError(error, run_dir) from error


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay interrupts until the end of the block."""
    received: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    with handling(_INTERRUPTS, remember):
        yield
    if received:
        raise KeyboardInterrupt


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Treat a closed terminal or SIGTERM as an interrupt: no job may be left behind."""
    with handling((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        yield


class Answering:
    """Thread that sends this machine's time to the nodes of a check, then signals their job."""

    def __init__(self, run_dir: Path, num_nodes: int) -> None:
        self._paths = RunPaths(run_dir)
        self._left = set(range(num_nodes))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop answering."""
        self._is_over.set()
        self._thread.join(5.0)

    def _answer(self) -> None:
        folder = self._paths.output_dir("doctor")
        while self._left and not self._is_over.wait(_POLL_S):
            for rank in sorted(self._left):
                with suppress(OSError):
                    read_json(folder / hello_name(rank))
                    seen_unix_s = time.time()
                    make_private_dir(folder)
                    values = {"seen_unix_s": seen_unix_s, "written_unix_s": time.time()}
                    write_json_atomic(folder / answer_name(rank), values)
                    self._left.discard(rank)
        if self._left:
            return
        problem = ""
        try:
            signal_job(self._paths)
        except (SlurmJobsError, OSError) as error:
            problem = f"it could not be sent: {error}"
        with suppress(OSError):  # the nodes then report that they got no answer
            write_json_atomic(folder / SIGNAL_NAME, {"problem": problem})


def signal_job(paths: RunPaths) -> None:
    """Send SIGUSR2 to the batch process of a check's job, as Slurm does near a time limit.

    Raises:
        SchedulerError: there is no job, or it could not be signalled.
    """
    record = read_attempt(paths, "doctor", 0, 1)
    if record is None:
        message = "its attempt has no record yet"
        raise SchedulerError(message)
    if record.scheduler == "local":
        os.kill(record.pid, STOP_SIGNAL)
    else:
        ask(["scancel", "--batch", f"--signal={STOP_SIGNAL.name}", record.job_id])
