"""Child processes that do not outlive the one that started them, nor do their own children."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
"""Of Linux's prctl(2)."""
_POLL_S = 0.005


def dies_with_parent(number: int) -> Callable[[], None]:
    """For a child's `preexec_fn`: the kernel sends it signal `number` when its parent is gone.

    The parent must be a process of one thread, or start the child from its main thread: the
    kernel counts the end of the thread that forked.
    """
    libc = ctypes.CDLL(None)  # before the fork: loading a library is no work for in between

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number)

    return prepare


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be waited for."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def wait_with_group(leader_pid: int, *, patience_s: float, spare: int | None = None) -> bool:
    """Wait for a child that leads a process group, then end what it has left behind.

    That is the rest of its group, and every orphan that has become this process's child (one
    that made a session of its own), but `spare`.
    The child itself stays a zombie, so that its number is not given away meanwhile: the
    caller reaps it. Call `adopt_orphans` before the child is started.

    Returns:
        Whether all of them are gone; one that hangs in the kernel is not waited for longer
        than `patience_s`.
    """
    os.waitid(os.P_PID, leader_pid, os.WEXITED | os.WNOWAIT)
    with suppress(ProcessLookupError):
        os.killpg(leader_pid, signal.SIGKILL)
    end_s = time.monotonic() + patience_s
    while others := [pid for pid in _left_behind(leader_pid) if pid != spare]:
        if time.monotonic() > end_s:
            return False
        for pid in others:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):  # not ours yet: its parent has still to end
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_POLL_S)
    return True


def _left_behind(leader_pid: int) -> list[int]:
    own = os.getpid()
    return [
        pid
        for pid, parent, group, _ in _processes()
        if pid != leader_pid and (group == leader_pid or parent == own)
    ]


def kill_session(session: int, *, spare: int | None = None) -> None:
    """SIGKILL to every process of a session, whatever its process group, but `spare`."""
    for pid, _, _, own in _processes():
        if own == session and pid != spare:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> list[tuple[int, int, int, int]]:
    """Pid, parent, process group and session of every process of this host."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            parent, group, session = (int(field) for field in fields[1:4])
            found.append((int(path.parent.name), parent, group, session))
    return found
