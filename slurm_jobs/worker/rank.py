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
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.slurm_environment import default_variables, marked_as_ours
from slurm_jobs.shared.configs.output_references import output_dir_variable
from slurm_jobs.shared.errors import (
    NO_RETRY_EXIT_CODE,
    STOPPED_EXIT_CODE,
    PathExpansionError,
    StageConfigError,
    StageError,
)
from slurm_jobs.shared.expand import expand_path
from slurm_jobs.shared.files import (
    PRIVATE_UMASK,
    make_private_dir,
    read_json,
    remove_leftovers,
    write_bytes_atomic,
    write_json_atomic,
)
from slurm_jobs.shared.machine import interface_towards
from slurm_jobs.shared.processes.process_sessions import (
    adopt_orphans,
    dies_with_parent,
    wait_with_group,
)
from slurm_jobs.shared.processes.python_commands import script_command
from slurm_jobs.shared.processes.signal_handlers import handle
from slurm_jobs.shared.processes.stop_requests import RELAY_SIGNAL, STOP_SIGNAL
from slurm_jobs.shared.records.record_json import record_to_json
from slurm_jobs.shared.records.task_context import TaskContext, read_context
from slurm_jobs.shared.texts.truncation import truncated, truncated_lines
from slurm_jobs.shared.timings.step_records import PROCESS_EXIT_SPAN, spans_path
from slurm_jobs.worker.environment import rank_variables
from slurm_jobs.worker.hangs import DUMP_S, REQUEST_SIGNAL, request_stacks, stalled_path
from slurm_jobs.worker.idle import IdleWatch
from slurm_jobs.worker.last_line import read_last_line
from slurm_jobs.worker.late_exit import KEEPER_MARGIN_S, LateExit, late_text, read_returned

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
        stopped = code == STOPPED_EXIT_CODE and (bool(self._asked) or not self._is_shell)
        self._write_exit(code, stopped=stopped, note=note)
        if noting is not None:
            end_noting(noting, self._context)
        return 0 if stopped else min(abs(code), 125)

    def _not_started(self, error: Exception, code: int) -> int:
        write_error(self._task_dir, self._rank, error)
        self._write_exit(code, stopped=False)
        return code

    def _start(self) -> int | None:
        """Start the rank's process; on each node's first rank also the recording of node facts.

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

        signal.pthread_sigmask(signal.SIG_BLOCK, HELD)  # the child inherits this, see call.py
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
        # Not through `Popen`: it would reap the child, whose end is waited for elsewhere.
        with suppress(ProcessLookupError):
            if not self._is_shell:
                pid = self._function_pid()
                if number == STOP_SIGNAL:
                    os.kill(pid, RELAY_SIGNAL)
                os.kill(pid, number)  # the stop signal, too: the function may have a handler for it
            elif number != STOP_SIGNAL:
                os.killpg(self._process.pid, number)

    def _pass_on_request(self, _number: int, _frame: FrameType | None) -> None:
        """Have the rank write its stacks, and end it if the supervisor requests that."""
        request_stacks(self._task_dir, self._rank, self._function_pid())
        if stalled_path(self._task_dir).exists():
            time.sleep(DUMP_S)
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _wait(self, noting: int | None) -> tuple[int, str]:
        """Wait for the rank's end; return its exit code, and a note if its process was late.

        Exit code 0 counts only if the function returned (not after `os._exit(0)`), and not for a
        shell command that was asked to stop; see the module.
        """
        task_dir, rank, pid = self._task_dir, self._rank, self._process.pid
        if not self._is_shell:
            self._watch_function()
        if not wait_with_group(pid, patience_s=GROUP_PATIENCE_S, spare=noting):
            text = "slurm-jobs: a process of this rank cannot be killed"
            print(text, file=sys.stderr, flush=True)
        signal.setitimer(signal.ITIMER_REAL, 0)
        code, ended_unix_s = self._process.wait(), time.time()
        result, note = result_path(task_dir, rank), ""
        if code >= 0:
            note_exit(self._context, [result, error_path(task_dir, rank)], ended_unix_s)
        if (returned := read_returned(task_dir, rank)) is not None:
            note = late_text(task_dir, rank, returned["exit_code"], code)
            code = returned["exit_code"]
        if code == 0 and self._is_shell and {signal.SIGTERM, signal.SIGINT} & {*self._asked}:
            write_error(task_dir, rank, StageError(PERHAPS_HALF_DONE))
            code = TERMINATED_EXIT_CODE
        elif code == 0 and not self._is_shell and not result.exists():
            message = "the process ended with exit code 0 before its function returned (sys.exit?)"
            write_error(task_dir, rank, StageError(message))
            code = 1
        return code, note

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


def write_error(task_dir: Path, rank: int, error: BaseException) -> None:
    """Record the exception that ended a rank."""
    values = {
        "type": truncated(type(error).__name__),
        "message": truncated_lines(str(error)),
        "retryable": not isinstance(error, StageConfigError),
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


# Command and variables of a rank's process.
#
# Linux takes no argument or variable over 128 KiB. A longer shell command is passed to bash as a
# file, and for a longer config the variable names a file.


MAX_WORD_BYTES = 2**17
"""Size limit of an argument, or of a variable with its name, including the final zero:
MAX_ARG_STRLEN of execve(2) with pages of 4 KiB; with larger pages Linux takes more."""


def rank_command(order: dict[str, Any], rank_context: Path) -> list[str]:
    """Return the command; write a shell command that is too long to a file next to the context.

    `nsight_command` prepends nsys if requested.

    Raises:
        OSError: the file cannot be written.
    """
    if order["shell"] is None:
        return script_command(order["start_script"], "call", rank_context)
    shell = os.fsencode(order["shell"])
    if len(shell) < MAX_WORD_BYTES:
        return ["/bin/bash", "-c", order["shell"]]
    return ["/bin/bash", str(_written(rank_context, "shell.sh", shell))]


def rank_environment(
    context: TaskContext, order: dict[str, Any], rank_context: Path
) -> dict[str, str]:
    """Return the environment of the stage's process: torch's names, and ours for shell stages.

    Raises:
        OSError: a config that is too long for a variable cannot be written.
    """
    config = json.dumps(context.config)  # ASCII: a character is a byte
    if len(f"SLURM_JOBS_CONFIG={config}") < MAX_WORD_BYTES:
        config_variable = {"SLURM_JOBS_CONFIG": config}
    else:
        path = _written(rank_context, "config.json", config.encode())
        config_variable = {"SLURM_JOBS_CONFIG_FILE": str(path)}
    variables = {
        "RANK": context.rank,
        "WORLD_SIZE": context.num_ranks,
        "LOCAL_RANK": context.local_rank,
        "LOCAL_WORLD_SIZE": context.num_local_ranks,
        "GROUP_RANK": context.node_rank,
        "MASTER_ADDR": context.main_addr,
        "MASTER_PORT": context.main_port,
        "SLURM_JOBS_RUN_DIR": context.run_dir,
        "SLURM_JOBS_STAGE": context.stage,
        "SLURM_JOBS_SLICE": context.slice_index,
        "SLURM_JOBS_NUM_SLICES": context.num_slices,
        "SLURM_JOBS_ATTEMPT": context.attempt,
        "SLURM_JOBS_OUTPUT_DIR": context.output_dir,
        "SLURM_JOBS_NODE_LOCAL_DIR": context.node_local_dir,
        **config_variable,
        "PYTHONUNBUFFERED": "1",
    }
    for parent in context.parents:
        variables[output_dir_variable(parent.stage)] = parent.output_dir
        if parent.origin:
            variables[output_dir_variable(parent.origin)] = parent.output_dir
    # The first node's own name may resolve to a loopback address there; the route to the second
    # node is more reliable.
    addresses = [address for address in (context.main_addr, order.get("second_addr")) if address]
    defaults = default_variables(
        os.environ.keys(),
        num_threads=order["cpus_per_task"],
        num_ranks=context.num_ranks,
        num_gpus=order.get("num_gpus", 0),
        flight_prefix=str(context.task_dir / "flight-"),
        interface=interface_towards(addresses) if context.num_ranks > 1 else None,
    )
    shown = {key: str(value) for key, value in variables.items()}
    return {**os.environ, **marked_as_ours(defaults), **shown}


def _written(rank_context: Path, kind: str, data: bytes) -> Path:
    """Write `rank-00003.KIND` next to `rank-00003.context.json`, and return its path."""
    path = rank_context.with_name(f"{rank_context.name.partition('.')[0]}.{kind}")
    write_bytes_atomic(path, data)
    return path


# Command of a rank under Nsight Systems: `nsys profile` around it, one report for each rank.
#
# nsys runs between the keeper and the rank. Signals for the rank need its pid, which only a scan
# of the processes gives.


_START_PATIENCE_S = 30.0
"""Patience until nsys has started the rank, which takes some seconds on a slow file system."""
_NSIGHT_POLL_S = 0.05


def nsight_command(command: Sequence[str], context: TaskContext) -> list[str]:
    """Return a rank's command under nsys, which writes `rank-00003.nsys-rep` next to its steps."""
    output = str(context.timing_dir / f"rank-{context.rank:05d}").replace("%", "%%")
    return [
        "nsys",
        "profile",
        f"--output={output}",
        "--trace=cuda,nvtx,osrt",
        "--force-overwrite=true",
        "--wait=primary",  # the rank; the keeper ends what it leaves behind
        "--kill=none",  # a rank that is asked to stop saves first
        *command,
    ]


def find_rank(command: Sequence[str], nsys_pid: int) -> int | None:
    """Return the pid of the rank, which runs `command`; wait if nsys has not started it yet.

    None if it did not start, or nsys has ended.
    """
    end_s = time.monotonic() + _START_PATIENCE_S
    arguments = [os.fsencode(word) for word in command[1:]]
    ended = os.WEXITED | os.WNOWAIT | os.WNOHANG  # without reaping it
    with suppress(ChildProcessError):
        while time.monotonic() < end_s and os.waitid(os.P_PID, nsys_pid, ended) is None:
            parents: dict[int, int] = {}  # by pid, of the processes with this command
            for folder in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):  # it has ended meanwhile, or is another user's
                    if (folder / "cmdline").read_bytes().split(b"\0")[1:-1] == arguments:
                        status = (folder / "stat").read_text(errors="replace")
                        parents[int(folder.name)] = int(status.rpartition(")")[2].split()[1])
            for pid, parent in parents.items():
                if parent not in parents:  # forks of the rank have its command, too
                    return pid
            time.sleep(_NSIGHT_POLL_S)
    return None


# Recording of a node's facts next to its ranks, in a process that no rank depends on.
#
# The keeper of a node's first rank forks once that rank runs. The child may be slow (nvidia-smi
# is), may hang and may be killed. After the rank has ended, the keeper waits at most
# `FACTS_PATIENCE_S` for the first facts and `GPUS_PATIENCE_S` for the GPUs, and ignores the
# result.


FACTS_PATIENCE_S = 3.0
"""Patience for the first facts. They take milliseconds, more if all cores are busy; a rank rarely
ends before them."""
GPUS_PATIENCE_S = 0.3
KILLED_PATIENCE_S = 3.0
"""Patience for the end of a killed process, which needs a moment of a core, and has a low priority.
"""
_POLL_S = 0.005
_NICENESS = 10


def facts_path(context: TaskContext) -> Path:
    """Return the file with the facts of this node, for this attempt."""
    return RunPaths(context.run_dir).node_facts(
        context.stage, context.slice_index, context.attempt, context.node_rank
    )


def start_noting(context: TaskContext) -> int | None:
    """Fork a process that records the facts of this node, and return its pid at once.

    The caller has one thread, and blocks the signals that it handles. Return None if the node
    cannot fork any more.
    """
    die_with_keeper = dies_with_parent(signal.SIGKILL)
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid:
        return pid
    try:
        die_with_keeper()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.nice(_NICENESS)
        from slurm_jobs.worker.node_facts import note_node  # late: not in the ranks' way

        note_node(context, facts_path(context), os.environ)
    except Exception as error:  # noqa: BLE001 - missing facts never fail an attempt
        print(f"slurm-jobs: facts of this node not noted: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)


def end_noting(pid: int, context: TaskContext) -> None:
    """Give the recording process a moment more, end it, and remove partly written files."""
    facts = facts_path(context)
    has_ended = _ends(pid, FACTS_PATIENCE_S, unless=facts) or _ends(pid, GPUS_PATIENCE_S)
    if not has_ended:
        os.kill(pid, signal.SIGKILL)
        if _ends(pid, KILLED_PATIENCE_S):  # else it is stuck in the kernel
            remove_leftovers(facts.parent, facts.name)


def _ends(pid: int, patience_s: float, unless: Path | None = None) -> bool:
    """Return whether the process ends within `patience_s`; stop waiting once `unless` exists."""
    end_s = time.monotonic() + patience_s
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end_s or (unless is not None and unless.exists()):
            return False
        time.sleep(_POLL_S)
    return True


def note_exit(context: TaskContext, reports: list[Path], ended_unix_s: float) -> None:
    """Append the span of a process's end to those of its rank; do nothing if it records none.

    Python needs seconds to release what a training held, and cannot time that itself. If the span
    cannot be written, the time stays unexplained: a rank does not fail for it.

    Args:
        context: of the rank.
        reports: files that its process may have written last, as its function returned.
        ended_unix_s: time at which the process exited on its own. A killed process may have left
            half a line.
    """
    spans = spans_path(context.timing_dir, context.rank)
    if not spans.exists():
        return
    written = []
    for path in (*reports, spans):
        with suppress(OSError):
            written.append(path.stat().st_mtime)
    start_unix_s = min(max(written, default=ended_unix_s), ended_unix_s)
    span = {
        "name": PROCESS_EXIT_SPAN,
        "start_unix_s": start_unix_s,
        "duration_s": ended_unix_s - start_unix_s,
    }
    with suppress(OSError), spans.open("ab", buffering=0) as stream:
        stream.write(json.dumps(span).encode() + b"\n")
