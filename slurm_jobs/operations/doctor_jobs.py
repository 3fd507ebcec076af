"""Runs of `slurm-jobs doctor`: submitted, answered, waited for, and always cleaned up.

They are in a hidden folder next to the user's runs, so that none of them is the newest run.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from slurm_jobs.common.doctor_records import SIGNAL_NAME, answer_name, hello_name
from slurm_jobs.common.errors import FileError, InputError, SchedulerError, SlurmJobsError
from slurm_jobs.common.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.common.stop import STOP_SIGNAL
from slurm_jobs.operations.cancel import cancel
from slurm_jobs.operations.submit import submit
from slurm_jobs.reconcile import RunStatus
from slurm_jobs.run.observe import status_of
from slurm_jobs.run.paths import RunPaths, is_run
from slurm_jobs.run.store import read_attempt, read_completion, read_meta
from slurm_jobs.run.waiting import in_doubt, looks_until_over
from slurm_jobs.schedulers.slurm_questions import ask
from slurm_jobs.spec.loader import LoadedSpec

OnLook = Callable[[RunStatus], None]
_POLL_S = 0.1
_KEPT_S = 86_400.0
"""Runs of a check are useful for investigating a failure, but not for long."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def folder_of_looks(runs_dir: Path) -> Path:
    """Return the folder of this user's `doctor` runs."""
    return runs_dir / f".doctor-{os.getuid()}"


def beside(loaded: LoadedSpec) -> LoadedSpec:
    """Return the spec with the hidden folder for its run."""
    folder = folder_of_looks(Path(loaded.spec.runs_dir))
    return replace(loaded, spec=loaded.spec.model_copy(update={"runs_dir": str(folder)}))


def remove_old(runs_dir: Path) -> None:
    """Remove the runs of earlier checks that are too old to be useful."""
    for folder in folder_of_looks(runs_dir).glob("*"):
        with suppress(OSError):
            if is_run(folder) and time.time() - folder.stat().st_mtime > _KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """Finished run."""

    run_dir: Path
    status: RunStatus | None
    """None if no status was available."""
    gave_up: str = ""
    """Reason why it was cancelled before its end."""


def run_to_its_end(
    loaded: LoadedSpec, *, wait_s: float, on_look: OnLook, num_nodes: int = 0
) -> Ended:
    """Submit and wait; cancel active jobs if the wait ends early.

    Args:
        loaded: spec with one stage.
        wait_s: longest that nothing of it may run.
        on_look: called with each status.
        num_nodes: nodes of a node check, whose questions are answered; 0 for none.

    Raises:
        SpecError: the cluster could never run it; SchedulerError: it was refused.
        KeyboardInterrupt: the user ended it; its jobs are cancelled.
    """
    folder = Path(loaded.spec.runs_dir)
    before = set(folder.glob("*"))
    try:
        with _interrupts_held():
            run_dir = submit(loaded).paths.run_dir
    except BaseException:
        _cancel_new(folder, before)
        raise
    answering = Answering(run_dir, num_nodes) if num_nodes else None
    try:
        return _wait(run_dir, wait_s, on_look)
    except BaseException:
        _cancel(run_dir)
        raise
    finally:
        if answering is not None:
            answering.end()


def _wait(run_dir: Path, wait_s: float, on_look: OnLook) -> Ended:
    status: RunStatus | None = None
    idle_since_s = time.monotonic()
    for seen in looks_until_over(
        lambda: status_of(run_dir, fresh=False),
        lambda seen: seen,
        in_doubt,
        read_meta(RunPaths(run_dir)).scheduler,
    ):
        status = seen
        on_look(seen)
        if seen.status == "running":
            idle_since_s = time.monotonic()
        if time.monotonic() - idle_since_s > wait_s:
            _cancel(run_dir)
            waited = f"after {wait_s / 60:g} min it was cancelled"
            return Ended(
                run_dir=run_dir, status=status, gave_up=f"{reason_of(run_dir, seen)}; {waited}"
            )
    return Ended(run_dir=run_dir, status=status)


def reason_of(run_dir: Path, status: RunStatus) -> str:
    """Return the reason of its only stage's status: from the record, otherwise the scheduler."""
    stage = status.stages[0]
    part = stage.slices[0]
    if part.ending is not None:
        with suppress(OSError):
            record = read_completion(RunPaths(run_dir), stage.stage.name, part.ending)
            if record.reason:
                return record.reason
    problems = "; ".join(status.problems)
    return part.reason or part.state or problems or part.status


def _cancel(run_dir: Path) -> None:
    """Cancel, even if the user interrupts again.

    Raises:
        SchedulerError: cancelling failed; the message has the command.
    """
    with _interrupts_held():
        try:
            cancel(run_dir)
        except (SchedulerError, FileError) as error:
            message = f"{error}\nits jobs may live: slurm-jobs cancel {run_dir}"
            raise SchedulerError(message) from error


def _cancel_new(folder: Path, before: Collection[Path]) -> None:
    """Cancel what a failed submit may have left."""
    for run_dir in folder.glob("*"):
        if run_dir not in before and is_run(run_dir):
            with suppress(InputError):  # without a plan it has no job
                _cancel(run_dir)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay interrupts until the end of the block."""
    came: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, remember) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


@contextmanager
def ends_as_interrupts() -> Iterator[None]:
    """Treat a closed terminal or SIGTERM as an interrupt: no job may be left behind."""
    others = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in others}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
                    self._answer_one(folder, rank)
        if self._left:
            return
        problem = ""
        try:
            signal_job(self._paths)
        except (SlurmJobsError, OSError) as error:
            problem = f"it could not be sent: {error}"
        with suppress(OSError):  # the nodes then report that they got no answer
            write_json_atomic(folder / SIGNAL_NAME, {"problem": problem})

    def _answer_one(self, folder: Path, rank: int) -> None:
        """Answer one rank; raises OSError while there is no question."""
        read_json(folder / hello_name(rank))
        seen_unix_s = time.time()
        make_private_dir(folder)
        values = {"seen_unix_s": seen_unix_s, "written_unix_s": time.time()}
        write_json_atomic(folder / answer_name(rank), values)
        self._left.discard(rank)


def signal_job(paths: RunPaths) -> None:
    """Send SIGUSR2 to the batch process of a look's job, as Slurm does near a time limit.

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
