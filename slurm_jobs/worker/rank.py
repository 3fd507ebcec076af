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
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from slurm_jobs.base.errors import (
    NO_RETRY_EXIT_CODE,
    STOPPED_EXIT_CODE,
    PathExpansionError,
    StageConfigError,
    StageError,
)
from slurm_jobs.base.failure_kinds import FailureKind
from slurm_jobs.base.files import PRIVATE_UMASK, make_private_dir, read_json, write_json_atomic
from slurm_jobs.base.processes.process_sessions import (
    adopt_orphans,
    dies_with_parent,
    wait_with_group,
)
from slurm_jobs.base.processes.signal_handlers import handle
from slurm_jobs.base.processes.stop_requests import RELAY_SIGNAL, STOP_SIGNAL
from slurm_jobs.base.texts.truncation import truncated, truncated_lines
from slurm_jobs.formats.expand import expand_path
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import TaskContext, read_context
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.worker.exception_kind import kind_of, resumes_of
from slurm_jobs.worker.fact_recording import end_noting, note_exit, start_noting
from slurm_jobs.worker.hangs import DUMP_S, stalled_path
from slurm_jobs.worker.idle import IdleWatch
from slurm_jobs.worker.job_identity import rank_variables
from slurm_jobs.worker.last_line import read_last_line
from slurm_jobs.worker.late_exit import KEEPER_MARGIN_S, LateExit, late_text, read_returned
from slurm_jobs.worker.nsight import find_rank, nsight_command
from slurm_jobs.worker.rank_command import rank_command, rank_environment
from slurm_jobs.worker.stacks import REQUEST_SIGNAL, request_stacks

CHECK_S = KEEPER_MARGIN_S / 2
"""Interval between two checks of a function's process."""
GROUP_PATIENCE_S = 10.0
"""Patience for processes that a rank left behind and that the kernel does not end at once."""
FORWARDED = (STOP_SIGNAL, signal.SIGTERM, signal.SIGINT)
HELD = (*FORWARDED, RELAY_SIGNAL)
"""Signals that a rank's process blocks until it can take them, and again while it exits."""
PERHAPS_HALF_DONE = (
    "the command ended with exit code 0 after SIGTERM, which may have ended a part of its work "
    "early; 75 means that it stopped and can continue"
)
TOO_LONG = (
    "the environment of this stage is larger than Linux allows for a process; shorten "
    "`environment:` and what `setup:` sets, or raise the limit there (`ulimit -s unlimited`)"
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
    return _Keeper(task_dir).keep()


class _Keeper:
    """Keeper of one rank, from its start to its exit record."""

    _order: dict[str, Any]
    _is_shell: bool
    _command: list[str]
    """Command of the rank, without nsys."""
    _process: subprocess.Popen[bytes]
    """The rank, or its nsys."""

    def __init__(self, task_dir: Path) -> None:
        who = rank_variables()
        self._task_dir = task_dir
        self._context = dataclasses.replace(read_context(task_dir / "context.json"), **who)  # type: ignore[arg-type]
        self._rank = self._context.rank
        self._asked: list[int] = []
        """Stop signals, as they arrive."""

    def keep(self) -> int:
        """Run the rank to its end, and return this process's exit code."""
        try:
            folder = _node_local_dir(self._context)
            self._context = dataclasses.replace(self._context, node_local_dir=folder)
            self._order = read_json(self._task_dir / "order.json")
            self._is_shell = self._order["shell"] is not None
            if self._order["nsight"] and shutil.which("nsys") is None:
                message = (
                    f"stage {self._context.stage} has `nsight: true`, and node "
                    f"{self._context.node_name} has no nsys on its PATH "
                    f"({os.environ.get('PATH', '')}): load its module in `setup:` "
                    "(`module load nsight-systems`), or leave `nsight` out"
                )
                raise StageConfigError(message)
        except (OSError, StageConfigError) as error:
            return self._not_started(error, NO_RETRY_EXIT_CODE)
        adopt_orphans()
        try:
            noting = self._start()
        except OSError as error:  # a process that was not recorded is killed with this one
            is_too_long = error.errno == errno.E2BIG
            return self._not_started(StageConfigError(TOO_LONG) if is_too_long else error, 1)
        code, note = self._wait(noting)
        # A function counts as stopped even if this rank was not asked, because another rank may
        # have been. `read_end` knows all ranks, and makes it a failure if none was asked.
        stopped = code == STOPPED_EXIT_CODE and (bool(self._asked) or not self._is_shell)
        self._write_exit(code, stopped=stopped, note=note)
        if noting is not None:
            end_noting(noting, self._context)
        return 0 if stopped else min(abs(code), 125)

    def _not_started(self, error: Exception, code: int) -> int:
        kind: FailureKind | None = "not started" if isinstance(error, OSError) else None
        write_error(self._task_dir, self._rank, error, kind=kind)
        self._write_exit(code, stopped=False)
        return code

    def _start(self) -> int | None:
        """Start the rank's process; on each node's first rank also the recording of node facts.

        No signal may be lost meanwhile. So they are blocked first, and the child inherits that: a
        function unblocks them once it has handlers (`install_stop_handler`), and a shell command,
        which has none, as it starts. This process unblocks them last, once it has handlers and the
        child that these pass signals to.

        Returns:
            The pid of the recording process if there is one.
        """
        context = self._context
        rank_context = context_path(self._task_dir, self._rank)
        write_json_atomic(rank_context, record_to_json(context))
        self._command = command = rank_command(self._order, rank_context)
        die_with_keeper = dies_with_parent(signal.SIGKILL)

        def prepare() -> None:
            die_with_keeper()
            os.setpgid(0, 0)  # processes that the rank starts end with it
            signal.signal(STOP_SIGNAL, signal.SIG_IGN)  # see `RELAY_SIGNAL`
            if self._is_shell:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
                signal.signal(REQUEST_SIGNAL, signal.SIG_DFL)  # a function still ignores it

        signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
        with self._log().open("ab") as stream:
            self._process = subprocess.Popen(
                nsight_command(command, context) if self._order["nsight"] else command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=rank_environment(context, self._order, rank_context),
                preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
            )
        noting = start_noting(context) if context.local_rank == 0 else None
        for number in FORWARDED:
            handle(number, self._forward)
        if not self._is_shell:
            handle(REQUEST_SIGNAL, self._pass_on_request)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
        started = {
            "rank": self._rank,
            "pid": self._process.pid,
            "node": context.node_name,
            "keeper_pid": os.getpid(),
            "started_unix_s": time.time(),
        }
        write_json_atomic(started_path(self._task_dir, self._rank), started)
        return noting

    def _log(self) -> Path:
        context = self._context
        return RunPaths(context.run_dir).rank_log(
            context.stage, context.slice_index, context.attempt, self._rank
        )

    def _function_pid(self) -> int:
        """Return the pid of the stage's function, or of nsys if that has not started it."""
        pid = find_rank(self._command, self._process.pid) if self._order["nsight"] else None
        return pid or self._process.pid

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        """Pass a signal on: to a function's process, or to all processes of a shell command.

        A shell command gets no STOP_SIGNAL. nsys gets none that its function can take, because it
        must not end before it has written its report.
        """
        self._asked.append(number)
        if self._is_shell and number == STOP_SIGNAL:
            return
        # Not through `Popen`: it would reap the child, whose end is waited for elsewhere.
        with suppress(ProcessLookupError):
            if self._is_shell:
                os.killpg(self._process.pid, number)
                return
            pid = self._function_pid()
            if number == STOP_SIGNAL:
                os.kill(pid, RELAY_SIGNAL)
            os.kill(pid, number)  # the stop signal, too: the function may have a handler for it

    def _pass_on_request(self, _number: int, _frame: FrameType | None) -> None:
        """Have the rank write its stacks, and end it if the supervisor requests that."""
        request_stacks(self._task_dir, self._rank, self._function_pid())
        if stalled_path(self._task_dir).exists():
            time.sleep(DUMP_S)
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _wait(self, noting: int | None) -> tuple[int, str]:
        """Wait for the rank's end; return its exit code, and a note if its process was late.

        What a function's process recorded as the function returned counts more than how that
        process ended, because it may have been killed while it exited.
        """
        task_dir, rank, pid = self._task_dir, self._rank, self._process.pid
        if not self._is_shell:
            self._watch_function()
        if not wait_with_group(pid, patience_s=GROUP_PATIENCE_S, spare=noting):
            text = "slurm-jobs: a process of this rank cannot be killed"
            print(text, file=sys.stderr, flush=True)
        signal.setitimer(signal.ITIMER_REAL, 0)
        process_code, ended_unix_s = self._process.wait(), time.time()
        if process_code >= 0:
            ends = [result_path(task_dir, rank), error_path(task_dir, rank)]
            note_exit(self._context, ends, ended_unix_s)
        returned = read_returned(task_dir, rank)
        if returned is None:
            return self._without_false_success(process_code), ""
        code = returned["exit_code"]
        note = late_text(task_dir, rank, code, process_code)
        return self._without_false_success(code), note

    def _without_false_success(self, code: int) -> int:
        """Return the exit code, or that of a failure if it is 0 and work may be missing.

        Exit code 0 counts only if the function returned (not after `os._exit(0)`), and not for a
        shell command that was asked to end; see the module.
        """
        if code != 0:
            return code
        if self._is_shell and {signal.SIGTERM, signal.SIGINT} & {*self._asked}:
            write_error(self._task_dir, self._rank, StageError(PERHAPS_HALF_DONE))
            return TERMINATED_EXIT_CODE
        if not self._is_shell and not result_path(self._task_dir, self._rank).exists():
            message = "the process ended with exit code 0 before its function returned (sys.exit?)"
            write_error(self._task_dir, self._rank, StageError(message), kind="exit code")
            return 1
        return 0

    def _watch_function(self) -> None:
        """Check by a timer's signal whether the function's process ends late, or is idle."""
        late = LateExit(self._task_dir, self._rank, self._process.pid, self._asked)
        idle = IdleWatch(self._task_dir, self._rank, self._context.node_name, self._function_pid)

        def check(_number: int, _frame: FrameType | None) -> None:
            late.check()
            with suppress(OSError):  # a rank must not fail for it
                idle.check()

        handle(signal.SIGALRM, check)
        signal.setitimer(signal.ITIMER_REAL, CHECK_S, CHECK_S)

    def _write_exit(self, code: int, *, stopped: bool, note: str = "") -> None:
        path = error_path(self._task_dir, self._rank)
        error = read_json(path) if path.exists() else None
        last_line = None
        if code > 0 and not stopped and error is None:  # only its output says why
            last_line = read_last_line(self._log(), os.environ)
        record = {
            "rank": self._rank,
            "node": self._context.node_name,
            "exit_code": code if code >= 0 else 128 - code,
            "signal": -code if code < 0 else None,
            "stopped": stopped,
            "asked": bool(self._asked) or asked_path(self._task_dir, self._rank).exists(),
            "ended_unix_s": time.time(),
            "error": error,
            "note": note,
            "last_line": last_line,
        }
        write_json_atomic(exit_path(self._task_dir, self._rank), record)


def write_error(
    task_dir: Path, rank: int, error: BaseException, *, kind: FailureKind | None = None
) -> None:
    """Record the exception that ended a rank; `kind` is that of what the exception describes."""
    values = {
        "type": truncated(type(error).__name__),
        "message": truncated_lines(str(error)),
        "retryable": not isinstance(error, StageConfigError),
        "kind": kind_of(error) if kind is None else kind,
        "resumes": resumes_of(error),
        "raised_unix_s": time.time(),
    }
    write_json_atomic(error_path(task_dir, rank), values)


def _node_local_dir(context: TaskContext) -> Path:
    """Return the user's folder on this node; keyed by node name, because nodes may share a host."""
    node, setting = context.node_name, f"node_local_dir is {context.node_local_dir}"
    try:
        base = expand_path(str(context.node_local_dir))
    except PathExpansionError as error:
        remedy = "Set the variable in `environment:` or `setup:`, or name a folder"
        message = f"{setting}, and on {node} {error}. {remedy}"
        raise StageConfigError(message) from error
    if not Path(base).is_absolute():
        message = f"{setting}, which on {node} is {base}: name a folder from the root on"
        raise StageConfigError(message)
    folder = Path(base) / f"slurm-jobs-{os.getuid()}"
    try:
        make_private_dir(folder)
    except OSError as error:
        message = (
            f"{setting}, and on {node} {folder} cannot be made ({error.strerror}): name a folder "
            "there that you may write in, as node_local_dir of the stage or of the cluster profile"
        )
        raise StageConfigError(message) from error
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        message = (
            f"{folder} on {node} is not a private folder of this user's (another user created it, "
            "or can open it); remove it, or name another node_local_dir"
        )
        raise StageConfigError(message)
    make_private_dir(folder / node)
    return folder / node
