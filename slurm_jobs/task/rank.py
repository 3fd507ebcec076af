"""Keeper of one rank: its log, its signals, and a record of how it ended.

The keeper starts the stage's process and outlives it, so that a rank killed with SIGKILL leaves a
record that names it. It exits 0 for a rank that stopped on request, so that srun does not kill the
others. Exit code 75 without such a request is a failure: of a shell command, because few users know
what 75 means here; of a function, unless another rank of its attempt was asked. Exit code 0 of a
shell command after SIGTERM is a failure, too: the signal ends the program that the shell waits for,
and the shell continues with the next command.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from slurm_jobs.common.context import TaskContext, context_to_json, read_context
from slurm_jobs.common.errors import (
    NO_RETRY_EXIT_CODE,
    STOPPED_EXIT_CODE,
    PathExpansionError,
    StageConfigError,
    StageError,
)
from slurm_jobs.common.files import (
    PRIVATE_UMASK,
    make_private_dir,
    read_json,
    write_json_atomic,
)
from slurm_jobs.common.path_expansion import expand_path
from slurm_jobs.common.process import adopt_orphans, dies_with_parent, wait_with_group
from slurm_jobs.common.stop import STOP_SIGNAL
from slurm_jobs.common.truncation import truncated, truncated_lines
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.task.environment import rank_variables
from slurm_jobs.task.exit_span import note_exit
from slurm_jobs.task.late_exit import LateExit, late_text, read_returned
from slurm_jobs.task.noting import end_noting, start_noting
from slurm_jobs.task.nsight import find_rank, nsight_command, require_nsys
from slurm_jobs.task.rank_command import rank_command, rank_environment
from slurm_jobs.task.stacks import REQUEST_SIGNAL, request_stacks
from slurm_jobs.task.stall import DUMP_S, stalled_path

GROUP_PATIENCE_S = 10.0
"""Patience for processes that a rank left behind and that the kernel does not end at once."""
FORWARDED = (STOP_SIGNAL, signal.SIGTERM, signal.SIGINT)
PERHAPS_HALF_DONE = (
    "the command ended with exit code 0 after SIGTERM, which may have ended a part of its work "
    "early; 75 means that it stopped and can continue"
)
TERMINATED_EXIT_CODE = 128 + signal.SIGTERM


def context_path(task_dir: Path, rank: int) -> Path:
    """Return the context of a rank; the keeper writes it before it starts the rank."""
    return task_dir / f"rank-{rank:05d}.context.json"


def started_path(task_dir: Path, rank: int) -> Path:
    """Return the record that a rank has started, with its pid."""
    return task_dir / f"rank-{rank:05d}.started.json"


def exit_path(task_dir: Path, rank: int) -> Path:
    """Return the record of how a rank ended."""
    return task_dir / f"rank-{rank:05d}.exit.json"


def error_path(task_dir: Path, rank: int) -> Path:
    """Return the exception that ended a rank, written by the rank itself."""
    return task_dir / f"rank-{rank:05d}.error.json"


def result_path(task_dir: Path, rank: int) -> Path:
    """Return the result of the stage's function."""
    return task_dir / f"rank-{rank:05d}.result.json"


def asked_path(task_dir: Path, rank: int) -> Path:
    """Return the record that the rank itself got a signal to stop, from any sender."""
    return task_dir / f"rank-{rank:05d}.asked.json"


def keep_rank(task_dir: Path) -> int:
    """Run one rank to its end and write its exit record."""
    os.umask(PRIVATE_UMASK)
    # Slurm sends a step's signal to all of its processes: to this one before it has started the
    # rank, and to the one that records the node's facts, which inherits this mask.
    signal.signal(REQUEST_SIGNAL, signal.SIG_IGN)
    who = rank_variables()
    context = dataclasses.replace(read_context(task_dir / "context.json"), **who)  # type: ignore[arg-type]
    try:
        context = dataclasses.replace(context, node_local_dir=_node_local_dir(context))
        if read_json(task_dir / "order.json")["nsight"]:
            require_nsys(context)
    except (OSError, StageConfigError) as error:
        return _not_started(task_dir, context, error, NO_RETRY_EXIT_CODE)
    adopt_orphans()
    asked: list[int] = []
    try:
        process, noting = _start(task_dir, context, asked)
    except OSError as error:  # a process that was not recorded is killed with this one
        return _not_started(task_dir, context, _explained(error), 1)
    late = LateExit(task_dir, context.rank, process.pid, asked)
    if not _is_shell(task_dir):
        late.watch()
    if not wait_with_group(process.pid, patience_s=GROUP_PATIENCE_S, spare=noting):
        print("slurm-jobs: a process of this rank cannot be killed", file=sys.stderr, flush=True)
    late.stop()
    code, ended_unix_s = process.wait(), time.time()
    if code >= 0:
        said = [result_path(task_dir, context.rank), error_path(task_dir, context.rank)]
        note_exit(context, said, ended_unix_s)
    note = ""
    if (returned := read_returned(task_dir, context.rank)) is not None:
        note = late_text(task_dir, context.rank, returned["exit_code"], code)
        code = returned["exit_code"]
    code = _checked_code(task_dir, context, code, asked)
    stopped = code == STOPPED_EXIT_CODE and (bool(asked) or not _is_shell(task_dir))
    was_asked = bool(asked) or asked_path(task_dir, context.rank).exists()
    _write_exit(task_dir, context, code, stopped=stopped, was_asked=was_asked, note=note)
    if noting is not None:
        end_noting(noting, context)
    return 0 if stopped else min(abs(code), 125)


def _not_started(task_dir: Path, context: TaskContext, error: Exception, code: int) -> int:
    write_error(task_dir, context.rank, error)
    _write_exit(task_dir, context, code, stopped=False)
    return code


def _explained(error: OSError) -> Exception:
    """Return the error with its remedy if no other attempt can help."""
    if error.errno != errno.E2BIG:
        return error
    return StageConfigError(
        "the environment of this stage is larger than Linux allows for a process; shorten "
        "`environment:` and what `setup:` sets, or raise the limit there (`ulimit -s unlimited`)"
    )


def _start(
    task_dir: Path, context: TaskContext, asked: list[int]
) -> tuple[subprocess.Popen[bytes], int | None]:
    """Start the rank's process; on each node's first rank also the recording of node facts.

    Stop signals are added to `asked` as they arrive.

    Returns:
        The process, and the pid of the recording process if there is one.
    """
    order = read_json(task_dir / "order.json")
    log = RunPaths(context.run_dir).rank_log(
        context.stage, context.slice_index, context.attempt, context.rank
    )
    rank_context = context_path(task_dir, context.rank)
    write_json_atomic(rank_context, context_to_json(context))
    is_shell = _is_shell(task_dir)
    command = rank_command(order, rank_context)
    started_with = nsight_command(command, context) if order["nsight"] else command
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # the child inherits this, see call.py
    with log.open("ab") as stream:
        process = subprocess.Popen(
            started_with,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=rank_environment(context, order, rank_context),
            preexec_fn=_prepare(is_shell=is_shell),  # noqa: PLW1509 - this process has one thread
        )
    noting = start_noting(context) if context.local_rank == 0 else None
    under_nsys = command if order["nsight"] and not is_shell else None
    _forward_signals(process, asked, is_shell=is_shell, under_nsys=under_nsys)
    if not is_shell:
        _pass_on_requests(task_dir, context.rank, process.pid, under_nsys)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    started = {"rank": context.rank, "pid": process.pid, "node": context.node_name}
    write_json_atomic(
        started_path(task_dir, context.rank),
        {**started, "keeper_pid": os.getpid(), "started_unix_s": time.time()},
    )
    return process, noting


def _is_shell(task_dir: Path) -> bool:
    return read_json(task_dir / "order.json")["shell"] is not None


def _checked_code(task_dir: Path, context: TaskContext, code: int, asked: list[int]) -> int:
    """Return the exit code; 0 counts only if the function returned (not after `os._exit(0)`).

    It does not count for a shell command that was asked to stop; see the module.
    """
    if code == 0 and _is_shell(task_dir) and {signal.SIGTERM, signal.SIGINT} & {*asked}:
        write_error(task_dir, context.rank, StageError(PERHAPS_HALF_DONE))
        return TERMINATED_EXIT_CODE
    if code != 0 or _is_shell(task_dir) or result_path(task_dir, context.rank).exists():
        return code
    message = "the process ended with exit code 0 before its function returned (sys.exit?)"
    write_error(task_dir, context.rank, StageError(message))
    return 1


def write_error(task_dir: Path, rank: int, error: BaseException) -> None:
    """Record the exception that ended a rank."""
    values = {
        "type": truncated(type(error).__name__),
        "message": truncated_lines(str(error)),
        "retryable": not isinstance(error, StageConfigError),
    }
    write_json_atomic(error_path(task_dir, rank), values)


def _write_exit(
    task_dir: Path,
    context: TaskContext,
    code: int,
    *,
    stopped: bool,
    was_asked: bool = False,
    note: str = "",
) -> None:
    record: dict[str, Any] = {
        "rank": context.rank,
        "node": context.node_name,
        "exit_code": code if code >= 0 else 128 - code,
        "signal": -code if code < 0 else None,
        "stopped": stopped,
        "asked": was_asked,
        "ended_unix_s": time.time(),
        "error": None,
        "note": note,
    }
    if error_path(task_dir, context.rank).exists():
        record["error"] = read_json(error_path(task_dir, context.rank))
    write_json_atomic(exit_path(task_dir, context.rank), record)


def _node_local_dir(context: TaskContext) -> Path:
    """Return the user's folder on this node; keyed by node name, because nodes may share a host."""
    try:
        base = expand_path(str(context.node_local_dir))
    except PathExpansionError as error:
        message = (
            f"node_local_dir is {context.node_local_dir}, and on {context.node_name} {error}. Set "
            "the variable in `environment:` or `setup:`, or name a folder"
        )
        raise StageConfigError(message) from error
    if not Path(base).is_absolute():
        message = (
            f"node_local_dir is {context.node_local_dir}, which on {context.node_name} is {base}: "
            "name a folder from the root on"
        )
        raise StageConfigError(message)
    folder = Path(base) / f"slurm-jobs-{os.getuid()}"
    try:
        make_private_dir(folder)
    except OSError as error:
        message = (
            f"node_local_dir is {context.node_local_dir}, and on {context.node_name} {folder} "
            f"cannot be made ({error.strerror}): name a folder there that you may write in, as "
            "node_local_dir of the stage or of the cluster profile"
        )
        raise StageConfigError(message) from error
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        message = (
            f"{folder} on {context.node_name} is not a private folder of this user's (another user "
            "created it, or can open it); remove it, or name another node_local_dir"
        )
        raise StageConfigError(message)
    make_private_dir(folder / context.node_name)
    return folder / context.node_name


def _prepare(*, is_shell: bool) -> Callable[[], None]:
    """Return a function for the child: it dies with its keeper, and a shell unblocks signals."""
    die_with_keeper = dies_with_parent(signal.SIGKILL)

    def prepare() -> None:
        die_with_keeper()
        os.setpgid(0, 0)  # processes that the rank starts end with it
        if is_shell:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
            signal.signal(REQUEST_SIGNAL, signal.SIG_DFL)  # a function still ignores it

    return prepare


def _forward_signals(
    process: subprocess.Popen[bytes],
    asked: list[int],
    *,
    is_shell: bool,
    under_nsys: list[str] | None,
) -> None:
    """Pass signals on: to a function's process, or to all processes of a shell command.

    A shell command gets no STOP_SIGNAL, which would end it. `under_nsys` is a function's command if
    `process` is nsys, which must not end before it has written its report.
    """

    def forward(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        # Not through `process`: it would reap the child, whose end is waited for elsewhere.
        with suppress(ProcessLookupError):
            if under_nsys is not None:
                pid = find_rank(under_nsys, process.pid)
                os.kill(process.pid if pid is None else pid, number)
            elif not is_shell:
                os.kill(process.pid, number)
            elif number != STOP_SIGNAL:
                os.killpg(process.pid, number)

    for number in FORWARDED:
        signal.signal(number, forward)


def _pass_on_requests(task_dir: Path, rank: int, pid: int, under_nsys: list[str] | None) -> None:
    """Have the rank write its stacks on request, and end it if the supervisor requests that."""

    def request(_number: int, _frame: FrameType | None) -> None:
        function = pid if under_nsys is None else find_rank(under_nsys, pid)
        request_stacks(task_dir, rank, function or pid)
        if stalled_path(task_dir).exists():
            time.sleep(DUMP_S)
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    signal.signal(REQUEST_SIGNAL, request)
