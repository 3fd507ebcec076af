"""Trials on all ranks of a job: rank 0 chooses, every rank runs its part as a new process.

No state of a trial reaches the next one. The ranks communicate by small files in the attempt's
folder. A rank whose part fails ends those of the others, which would otherwise wait for minutes;
a rank that dies ends the job, as in every stage. A part ends with its rank.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import slurm_jobs
from slurm_jobs.base.errors import DamagedFileError, StageStoppedError
from slurm_jobs.base.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.base.processes.process_sessions import dies_with_parent
from slurm_jobs.base.processes.python_commands import script_command
from slurm_jobs.base.processes.stop_requests import stop_requested
from slurm_jobs.formats.configs.train import MEASURE_RUN
from slurm_jobs.formats.records.attempt_records import attempt_label
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.worker.rank import error_path

TRIALS_DIR = "trials"
_POLL_S = 0.1
_OTHERS_PATIENCE_S = 5.0
"""Grace time of the other ranks' parts after one has failed: their messages may say more."""
_ERROR_CHARACTERS = 300


def trial_timing_dir(context: TaskContext, number: int) -> Path:
    """Return the trial's counterpart of an attempt folder, which holds its timing folder."""
    return context.timing_dir / TRIALS_DIR / f"{number:04d}"


def run_trial(
    context: TaskContext, number: int, config: Mapping[str, Any], *, port: int, limit_s: float
) -> str:
    """Run a trial on all ranks, and wait until all have ended; return why it failed, or nothing.

    Args:
        context: context of rank 0.
        number: number of the trial in this attempt.
        config: config of `pipeline.train.measure`.
        port: port on rank 0's node for the trial's ranks.
        limit_s: time after which it is ended.

    Raises:
        StageStoppedError: this rank was asked to stop.
    """
    folder = _folder(context, number)
    make_private_dir(folder)
    order = {"config": dict(config), "port": port, "limit_s": limit_s}
    write_json_atomic(_order_path(context, number), order)
    _run_part(context, number, order)
    while len(ends := _ends(folder)) < context.num_ranks:
        _pause()
    failed = [end for end in ends if end["failure"]]
    return str(min(failed, key=lambda end: end["ended_unix_s"])["failure"]) if failed else ""


def end_trials(context: TaskContext) -> None:
    """Signal the other ranks that there are no more trials."""
    make_private_dir(context.task_dir / TRIALS_DIR)
    write_json_atomic(_over_path(context), {})


def run_parts(context: TaskContext) -> None:
    """Run this rank's part of each trial until there are no more; for ranks other than 0.

    Raises:
        StageStoppedError: this rank was asked to stop.
    """
    number = 1
    while not _over_path(context).exists():
        order = _read(_order_path(context, number))
        if order is None:
            _pause()
            continue
        _run_part(context, number, order)
        number += 1


def _run_part(context: TaskContext, number: int, order: Mapping[str, Any]) -> None:
    """Run this rank's process of a trial, and record its result."""
    folder = _folder(context, number)
    part = dataclasses.replace(
        context,
        config=order["config"],
        main_port=order["port"],
        task_dir=_folder(context, number) / f"rank-{context.rank:05d}",
        timing_dir=trial_timing_dir(context, number) / attempt_label(0, 1),
        output_dir=context.output_dir / "work",
        slice_index=0,
        attempt=1,
    )
    for needed in (part.timing_dir, part.task_dir, part.output_dir):
        make_private_dir(needed)
    path = part.task_dir / "context.json"
    write_json_atomic(path, record_to_json(part))
    command = script_command(_start_script(), "call", path)
    variables = {
        **os.environ,
        "SLURM_JOBS_ENTRY_POINT": MEASURE_RUN,
        "MASTER_PORT": str(part.main_port),
        "SLURM_JOBS_OUTPUT_DIR": str(part.output_dir),
    }
    with (part.task_dir / "log").open("ab") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=variables,
            preexec_fn=dies_with_parent(signal.SIGKILL),  # noqa: PLW1509 - this process has one thread
        )
    try:
        failure = _wait(process, folder, order["limit_s"])
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    if not failure and process.returncode:
        failure = f"rank {context.rank}: {_failure_of(part, process.returncode)}"
    end = {"rank": context.rank, "failure": failure, "ended_unix_s": time.time()}
    write_json_atomic(folder / f"rank-{context.rank:05d}.end.json", end)


def _wait(process: subprocess.Popen[bytes], folder: Path, limit_s: float) -> str:
    """Wait until it ends, or must be ended; return the reason, empty if it ended normally."""
    began_s, failed_s = time.monotonic(), None
    while process.poll() is None:
        _pause()
        now_s = time.monotonic()
        if now_s - began_s > limit_s:
            return f"it took more than {limit_s:.0f} s"
        if failed_s is None and any(end["failure"] for end in _ends(folder)):
            failed_s = now_s
        if failed_s is not None and now_s - failed_s > _OTHERS_PATIENCE_S:
            return "ended because another rank failed"
    return ""


def _pause() -> None:
    """Wait a moment.

    Raises:
        StageStoppedError: this rank was asked to stop.
    """
    if stop_requested():
        message = "asked to stop: all finished trials are recorded"
        raise StageStoppedError(message)
    time.sleep(_POLL_S)


def _failure_of(part: TaskContext, code: int) -> str:
    """Return the error of the process, or its exit status."""
    error = _read(error_path(part.task_dir, part.rank))
    if error is not None:
        text = f"{error['type']}: {' '.join(str(error['message']).split())}"
        is_long = len(text) > _ERROR_CHARACTERS
        return text[: _ERROR_CHARACTERS - 3] + "..." if is_long else text
    if code < 0:
        killed = f"it was killed by signal {-code}"
        return (
            f"{killed}; the node may have run out of memory" if code == -signal.SIGKILL else killed
        )
    return f"it ended with exit code {code}; its log: {part.task_dir / 'log'}"


def _ends(folder: Path) -> list[Any]:
    ends = (_read(path) for path in folder.glob("rank-*.end.json"))
    return [end for end in ends if end is not None]


def _read(path: Path) -> Any:
    """Return None for a missing file."""
    with suppress(FileNotFoundError, DamagedFileError):
        return read_json(path)
    return None


def _folder(context: TaskContext, number: int) -> Path:
    return context.task_dir / TRIALS_DIR / f"{number:04d}"


def _order_path(context: TaskContext, number: int) -> Path:
    return context.task_dir / TRIALS_DIR / f"{number:04d}.order.json"


def _over_path(context: TaskContext) -> Path:
    return context.task_dir / TRIALS_DIR / "over.json"


def _start_script() -> Path:
    """Return the start script of the run's snapshot, whose `lib.zip` holds this package."""
    return Path(slurm_jobs.__file__).resolve().parent.parent.parent / "start.py"
