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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.slurm_environment import default_variables, marked_as_ours
from slurm_jobs.shared.errors import (
    NO_RETRY_EXIT_CODE,
    STOPPED_EXIT_CODE,
    PathExpansionError,
    StageConfigError,
    StageError,
    truncated,
    truncated_lines,
)
from slurm_jobs.shared.expand import expand_path, output_dir_variable
from slurm_jobs.shared.files import (
    PRIVATE_UMASK,
    make_private_dir,
    read_json,
    remove_leftovers,
    write_bytes_atomic,
    write_json_atomic,
)
from slurm_jobs.shared.machine import interface_towards
from slurm_jobs.shared.process import (
    STOP_SIGNAL,
    adopt_orphans,
    dies_with_parent,
    script_command,
    wait_with_group,
)
from slurm_jobs.shared.records import TaskContext, read_context, record_to_json
from slurm_jobs.shared.timings import PROCESS_EXIT_SPAN, spans_path
from slurm_jobs.worker.environment import rank_variables
from slurm_jobs.worker.hangs import DUMP_S, REQUEST_SIGNAL, request_stacks, stalled_path
from slurm_jobs.worker.late_exit import LateExit, late_text, read_returned

# Span that measures how long a rank's process takes to end after its function has returned.
#
# Python needs seconds to release what a training held, and cannot time that itself. The keeper
# writes the span.


def note_exit(context: TaskContext, words: list[Path], ended_unix_s: float) -> None:
    """Append the span to those of the rank; do nothing if its stage records none.

    If it cannot be written, the time stays unexplained: a rank does not fail for it.

    Args:
        context: of the rank.
        words: files that its process may have written last, as its function returned.
        ended_unix_s: time at which the process exited on its own. A killed process may have left
            half a line.
    """
    spans = spans_path(context.timing_dir, context.rank)
    if not spans.exists():
        return
    written = []
    for path in (*words, spans):
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
        if _ends(pid, GPUS_PATIENCE_S):  # else it is stuck in the kernel
            remove_leftovers(facts.parent, facts.name)


def _ends(pid: int, patience_s: float, unless: Path | None = None) -> bool:
    """Return whether the process ends within `patience_s`; stop waiting once `unless` exists."""
    end_s = time.monotonic() + patience_s
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end_s or (unless is not None and unless.exists()):
            return False
        time.sleep(_POLL_S)
    return True


# Command of a rank under Nsight Systems: `nsys profile` around it, one report for each rank.
#
# nsys runs between the keeper and the rank. Signals for the rank need its pid, which only a scan
# of the processes gives.


_START_PATIENCE_S = 30.0
"""Patience until nsys has started the rank, which takes some seconds on a slow file system."""
_NSIGHT_POLL_S = 0.05


def require_nsys(context: TaskContext) -> None:
    """Check that nsys is installed.

    Raises:
        StageConfigError: it is not on the PATH.
    """
    if shutil.which("nsys") is None:
        message = (
            f"stage {context.stage} has `nsight: true`, and node {context.node_name} has no nsys "
            f"on its PATH ({os.environ.get('PATH', '')}): load its module in `setup:` "
            "(`module load nsight-systems`), or leave `nsight` out"
        )
        raise StageConfigError(message)


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
    while time.monotonic() < end_s and not _has_ended(nsys_pid):
        pids = {int(name) for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208 - names alone
        same = {pid for pid in pids if _command_of(pid)[1:] == list(command[1:])}
        for pid in same:
            if _parent_of(pid) not in same:  # forks of the rank have its command, too
                return pid
        time.sleep(_NSIGHT_POLL_S)
    return None


def _has_ended(pid: int) -> bool:
    """Check whether a child has ended, without reaping it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def _parent_of(pid: int) -> int | None:
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    return None


def _command_of(pid: int) -> list[str]:
    with suppress(OSError):  # it has ended meanwhile, or is another user's
        return [os.fsdecode(w) for w in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    return []


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
        **_config_variable(context, rank_context),
        "PYTHONUNBUFFERED": "1",
    }
    for parent in context.parents:
        variables[output_dir_variable(parent.stage)] = parent.output_dir
        if parent.origin:
            variables[output_dir_variable(parent.origin)] = parent.output_dir
    defaults = default_variables(
        os.environ.keys(),
        num_threads=order["cpus_per_task"],
        num_ranks=context.num_ranks,
        num_gpus=order.get("num_gpus", 0),
        flight_prefix=str(context.task_dir / "flight-"),
        interface=_interface(context, order),
    )
    shown = {key: str(value) for key, value in variables.items()}
    return {**os.environ, **marked_as_ours(defaults), **shown}


def _interface(context: TaskContext, order: dict[str, Any]) -> str | None:
    """Return the interface of the route to the other nodes.

    The first node's own name may resolve to a loopback address there; the route to the second node
    is more reliable.
    """
    if context.num_ranks == 1:
        return None
    addresses = [context.main_addr, order.get("second_addr")]
    return interface_towards([address for address in addresses if address])


def _config_variable(context: TaskContext, rank_context: Path) -> dict[str, str]:
    """Return the variable with the config, or with the file of a config that is too long."""
    name, text = "SLURM_JOBS_CONFIG", json.dumps(context.config)  # ASCII: a character is a byte
    if len(f"{name}={text}") < MAX_WORD_BYTES:
        return {name: text}
    return {f"{name}_FILE": str(_written(rank_context, "config.json", text.encode()))}


def _written(rank_context: Path, kind: str, data: bytes) -> Path:
    """Write `rank-00003.KIND` next to `rank-00003.context.json`, and return its path."""
    path = rank_context.with_name(f"{rank_context.name.partition('.')[0]}.{kind}")
    write_bytes_atomic(path, data)
    return path


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
        reports = [result_path(task_dir, context.rank), error_path(task_dir, context.rank)]
        note_exit(context, reports, ended_unix_s)
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
    write_json_atomic(rank_context, record_to_json(context))
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
