"""Child processes that, with their own children, do not outlive the process that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.base.processes.process_table import living_process, process_entry, processes

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


def pids_of_sessions(sessions: Collection[int]) -> dict[int, list[int]]:
    """Return the pids in each session, also of processes that have ended and were not reaped.

    It asks the kernel for sessions alone: reading /proc/PID/stat takes ten times as long.
    """
    pids: dict[int, list[int]] = {session: [] for session in sessions}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has been reaped meanwhile
            session = os.getsid(int(path.name))
            if session in pids:
                pids[session].append(int(path.name))
    return pids


def kill_session(session: int, *, spare: int | None = None) -> bool:
    """Send SIGKILL to every process of a session, in any process group, except `spare`.

    Returns:
        True if there were any, even if they had ended and were not reaped.
    """
    members = [pid for pid in pids_of_sessions([session])[session] if pid != spare]
    signal_all(members, signal.SIGKILL)
    return bool(members)


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
        pid
        for pid in pids_of_sessions([session.leader_pid])[session.leader_pid]
        if living_process(pid) and (leader is not None or _has_variable(pid, session.variable))
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


def memory_of_sessions(limits: Mapping[int, float]) -> dict[int, int]:
    """Return the bytes of memory that the processes of each session hold, by the leader's pid.

    It counts memory that a cgroup could not reclaim: anonymous and shared memory. Pages that
    several processes share are divided among them. Pages of mapped files do not count. The exact
    count is slow, and is only taken if an upper bound exceeds the session's limit.
    """
    used_bytes = {}
    for leader, members in pids_of_sessions(limits).items():
        used_bytes[leader] = sum(_sum_of(pid, "status", ("RssAnon", "RssShmem")) for pid in members)
        if used_bytes[leader] > limits[leader]:
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
