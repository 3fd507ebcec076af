"""Child processes that, with their own children, do not outlive the process that started them."""

from __future__ import annotations

import ctypes
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from slurm_jobs.shared.files import write_text_atomic
from slurm_jobs.shared.process_table import living_process, process_entry, processes
from slurm_jobs.shared.regular_files import read_text
from slurm_jobs.shared.signal_handlers import handle

# Stop requests to a running stage: a flag that a signal sets.
#
# The handler saves nothing. A stage with several ranks must agree on the flag at a step boundary
# before it acts on it (a collective that only one rank enters hangs), save, and raise
# `StageStoppedError`. A stage that has measured how long this takes reports it with
# `note_stop_time`, and is asked early enough.


STOP_SIGNAL = signal.SIGUSR2
"""Signal that requests a stop. SIGUSR1 belongs to NCCL's tools; SIGTERM, which a site sends on
preemption, counts too."""
RELAY_SIGNAL = signal.SIGRTMIN + 9
"""Signal by which a rank's keeper passes `STOP_SIGNAL` on to the stage's function alone. Some
clusters send the signals of a step to all its processes. So functions ignore `STOP_SIGNAL`, which
their children inherit, executed programs too: it would end a program or the worker of a pool while
the function wants to finish what they work on."""

_signals_seen: set[int] = set()


def _remember(number: int, _frame: FrameType | None) -> None:
    _signals_seen.add(number)


def install_stop_handler() -> None:
    """Let `RELAY_SIGNAL` and SIGTERM set the flag; call it once, in the main thread."""
    signal.signal(STOP_SIGNAL, signal.SIG_IGN)
    handle(RELAY_SIGNAL, _remember)
    handle(signal.SIGTERM, _remember)
    # The parent blocks them until now, so that none is lost or ends the process during its start.
    held = (STOP_SIGNAL, RELAY_SIGNAL, signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, held)


def stop_requested() -> bool:
    """Return whether this process was asked to stop."""
    return bool(_signals_seen)


def end_requested() -> bool:
    """Return whether SIGTERM was among the requests: SIGKILL follows in any case."""
    return signal.SIGTERM in _signals_seen


def note_stop_time(task_dir: Path, stop_s: float) -> None:
    """Record the time from the request to the end of saving; one rank reports for all.

    The supervisor asks at least half as much again before the time limit, if that is earlier than
    `signal_lead_s`.
    """
    write_text_atomic(_stop_time_path(task_dir), f"{stop_s:.3f}\n")


def noted_stop_time_s(task_dir: Path) -> float:
    """Return the last value of `note_stop_time`; 0 if there is none."""
    with suppress(FileNotFoundError):
        return float(read_text(_stop_time_path(task_dir)))
    return 0.0


def _stop_time_path(task_dir: Path) -> Path:
    return task_dir / "stop-time-s"


# Programs run in parallel for facts, with a time limit and bounded output.
#
# If a program is missing, fails, hangs or prints too much, its answer holds the problem.


_MAX_ERROR_BYTES = 4096
_CHUNK_BYTES = 65536
_AFTER_KILL_S = 0.2
"""Patience for killed processes; one that is stuck in the kernel (a dead file system or device) is
left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandAnswer:
    """Output of a program."""

    output: bytes = b""
    """Standard output; the part so far if the program was ended early."""
    is_cut: bool = False
    """True if the program printed more than the limit."""
    problem: str = ""
    """Reason why the answer is missing or incomplete; empty if it is complete."""

    @property
    def text(self) -> str:
        """Return the output as text; bytes that are not UTF-8 become replacement characters."""
        return self.output.decode(errors="replace")


class _Running:
    """Program that was started, with its output so far."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None,
        prepare: Callable[[], None] | None,
    ) -> None:
        self.program = command[0]
        # Slurm sends the stop signal to all processes of a job: the program inherits that it is
        # blocked. A `preexec_fn` would run Python in a fork, which may crash if there are threads.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {STOP_SIGNAL})
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 - only where this process has one thread
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.output, self.errors = bytearray(), bytearray()
        self.is_cut = self.is_late = False

    def answer(self, end_s: float, limit_s: float) -> CommandAnswer:
        """Wait until the program has ended, or time is up."""
        output, problem = bytes(self.output), ""
        if self.is_cut:
            return CommandAnswer(output=output, is_cut=True)
        try:
            left_s = 0.0 if self.is_late else max(0.0, end_s - time.monotonic())
            code = self.process.wait(left_s)
        except subprocess.TimeoutExpired:
            self.is_late = True
        if self.is_late:
            problem = f"{self.program}: no answer in {limit_s:g} s"
        elif code != 0:
            lines = self.errors.decode(errors="replace").strip().splitlines()
            problem = f"{self.program}: {lines[0] if lines else f'exit code {code}'}"
        return CommandAnswer(output=output, problem=problem)

    def kill(self) -> None:
        """Kill the program and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the program if it still runs."""
        if self.process.poll() is None:
            self.kill()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_AFTER_KILL_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def ask_together(
    commands: Mapping[str, Sequence[str]],
    *,
    limit_s: float,
    max_bytes: int,
    env: Mapping[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
) -> Mapping[str, CommandAnswer]:
    """Run all `commands` in parallel and return their answers by name.

    Args:
        commands: name to argument list.
        limit_s: for all together; programs that still run are then killed, with their children.
        max_bytes: of each output; a program that prints more is ended.
        env: their environment; by default that of this process.
        prepare: as `preexec_fn` of subprocess, in a process with one thread.
    """
    answers: dict[str, CommandAnswer] = {}
    running: dict[str, _Running] = {}
    end_s = time.monotonic() + limit_s
    try:
        for name, command in commands.items():
            try:
                running[name] = _Running(command, env, prepare)
            except OSError as error:
                answers[name] = CommandAnswer(problem=f"{command[0]}: {error.strerror}")
        _read(running.values(), end_s, max_bytes)
        answers |= {name: program.answer(end_s, limit_s) for name, program in running.items()}
    finally:
        for program in running.values():
            program.close()
    return answers


def _read(running: Iterable[_Running], end_s: float, max_bytes: int) -> None:
    """Read all outputs until each is closed or over the limit, or time is up."""
    with selectors.DefaultSelector() as selector:
        for program in running:
            for stream, kept in (
                (program.process.stdout, program.output),
                (program.process.stderr, program.errors),
            ):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, (program, kept))
        while selector.get_map() and (left_s := end_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                program, kept = key.data
                chunk = os.read(key.fd, _CHUNK_BYTES)
                limit = max_bytes if kept is program.output else _MAX_ERROR_BYTES
                if kept is program.output and len(kept) + len(chunk) > limit:
                    program.is_cut = True
                    program.kill()
                kept += chunk[: limit - len(kept)]
                if not chunk or program.is_cut:
                    selector.unregister(key.fileobj)
        for key in selector.get_map().values():
            key.data[0].is_late = not key.data[0].is_cut


# Commands for this Python that load no module from the current folder.
#
# Python 3.11 has `-P` for that, and its own child processes (multiprocessing) inherit it. Python
# 3.10 has not: there our scripts first remove their own folder from `sys.path`.


_SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
_RUN_MODULE = (
    "import sys; del sys.path[0]; import runpy; "
    "runpy.run_module('{name}', run_name='__main__', alter_sys=True)"
)


def script_command(script: Path | str, *words: Path | str) -> list[str]:
    """Return the command of a script that removes its folder from `sys.path` if necessary."""
    return [sys.executable, *_SAFE_PATH, str(script), *map(str, words)]


def module_command(name: str, *words: Path | str) -> list[str]:
    """Return `python -m name` without the working folder on `sys.path`."""
    if _SAFE_PATH:
        return [sys.executable, *_SAFE_PATH, "-m", name, *map(str, words)]
    return [sys.executable, "-c", _RUN_MODULE.format(name=name), *map(str, words)]


_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
"""Option number from Linux's prctl(2)."""
_POLL_S = 0.005


def dies_with_parent(number: int) -> Callable[[], None]:
    """Return a `preexec_fn`: the kernel sends the child signal `number` when its parent ends.

    The parent must have one thread, or start the child from its main thread: the kernel counts the
    end of the thread that forked.
    """
    libc = ctypes.CDLL(None)  # before the fork: loading a library after it is not safe

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number)

    return prepare


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be waited for."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def wait_with_group(leader_pid: int, *, patience_s: float, spare: int | None = None) -> bool:
    """Wait for a child that leads a process group, then end all processes that it left behind.

    These are the rest of its group, and every orphan that has become this process's child (with its
    own session), except `spare`. The child itself stays a zombie, so that its pid is not reused
    meanwhile: the caller reaps it. Call `adopt_orphans` before the child is started.

    Returns:
        True if all of them have ended; one that hangs in the kernel is not waited for longer than
            `patience_s`.
    """
    os.waitid(os.P_PID, leader_pid, os.WEXITED | os.WNOWAIT)
    with suppress(ProcessLookupError):
        os.killpg(leader_pid, signal.SIGKILL)
    end_s = time.monotonic() + patience_s
    own_pid = os.getpid()
    while others := [
        process.pid
        for process in processes()
        if process.pid not in (leader_pid, spare)
        and (process.group == leader_pid or process.parent == own_pid)
    ]:
        if time.monotonic() > end_s:
            return False
        for pid in others:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):  # not ours until its parent ends
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_POLL_S)
    return True


def kill_session(session: int, *, spare: int | None = None) -> None:
    """Send SIGKILL to every process of a session, in any process group, except `spare`."""
    members = (process.pid for process in processes() if process.session == session)
    signal_all((pid for pid in members if pid != spare), signal.SIGKILL)


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes; skip those that have ended, or belong to other users."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """Identity of a session for processes that did not start it, at any later time."""

    leader_pid: int
    start_ticks: int
    """Start time of the leader, in kernel ticks since the machine's start."""
    pid_space: str
    """Scope in which the pid is unique: the machine's start, and the pid namespace."""
    variable: str
    """`NAME=value` in the environment of its processes, and of no others."""


def note_session(leader_pid: int, variable: str) -> Session:
    """Return the session that a child of this process leads; it must not be reaped yet."""
    leader = process_entry(leader_pid)
    assert leader is not None
    return Session(
        leader_pid=leader_pid,
        start_ticks=leader.start_ticks,
        pid_space=_pid_space(),
        variable=variable,
    )


def left_of_session(session: Session) -> list[int]:
    """Return pids of a session's living processes; none if they cannot be seen from here.

    A leader's pid is not reused while its session has processes, so a leader with another start
    time belongs to another session. After the leader has ended, its pid may have been that of
    another session whose leader has ended, too; then the variable decides.
    """
    if session.pid_space != _pid_space():
        return []
    leader = process_entry(session.leader_pid)
    if leader is not None and leader.start_ticks != session.start_ticks:
        return []
    return [
        process.pid
        for process in processes()
        if process.session == session.leader_pid
        and not process.has_ended
        and (leader is not None or _has_variable(process.pid, session.variable))
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class NotedProcess:
    """Identity of a process at any later time: its pid alone may be reused."""

    pid: int
    start_ticks: int
    pid_space: str
    """Scope of the pid, as of a `Session`."""


def note_process(pid: int) -> NotedProcess:
    """Return the identity of this process or of a child that is not reaped yet."""
    process = process_entry(pid)
    assert process is not None
    return NotedProcess(pid=pid, start_ticks=process.start_ticks, pid_space=_pid_space())


def process_lives(noted: NotedProcess) -> bool | None:
    """Return whether a process is alive; None if that cannot be seen from here (another host)."""
    if noted.pid_space != _pid_space():
        return None
    process = living_process(noted.pid)
    return process is not None and process.start_ticks == noted.start_ticks


def session_lives(session: Session) -> bool:
    """Return whether a process of a session is alive; False if it cannot be seen from here."""
    leader = NotedProcess(
        pid=session.leader_pid, start_ticks=session.start_ticks, pid_space=session.pid_space
    )
    # While the leader is alive, no scan of all processes of the host is needed.
    return bool(process_lives(leader) or left_of_session(session))


def memory_of_sessions(leader_pids: Collection[int], limits: Mapping[int, float]) -> dict[int, int]:
    """Return the bytes of memory that the processes of each session hold.

    It counts memory that a cgroup could not reclaim: anonymous and shared memory. Pages that
    several processes share are divided among them. Pages of mapped files do not count. The exact
    count is slow, and is only taken if an upper bound exceeds the session's limit.
    """
    pids: dict[int, list[int]] = {leader: [] for leader in leader_pids}
    for process in processes():
        if process.session in pids:
            pids[process.session].append(process.pid)
    used_bytes = {}
    for leader, members in pids.items():
        used_bytes[leader] = sum(_sum_of(pid, "status", ("RssAnon", "RssShmem")) for pid in members)
        if used_bytes[leader] > limits.get(leader, math.inf):
            exact = sum(_sum_of(p, "smaps_rollup", ("Pss_Anon", "Pss_Shmem")) for p in members)
            used_bytes[leader] = exact or used_bytes[leader]  # missing before Linux 5.4
    return used_bytes


def _sum_of(pid: int, file: str, names: Collection[str]) -> int:
    """Return the sum of such fields, in bytes; 0 for a process that has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/{file}").read_text(errors="replace").splitlines()
        pairs = (line.partition(":") for line in lines)
        return sum(int(value.split()[0]) * 1024 for name, _, value in pairs if name in names)
    return 0


def _pid_space() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def _has_variable(pid: int, variable: str) -> bool:
    with suppress(OSError):  # it has ended meanwhile, or is another user's
        return variable.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
