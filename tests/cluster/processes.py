"""Processes of one cluster: started, identified beyond doubt, stopped and nothing else with them.

A pid alone is not an identity, since the kernel hands it out again; pid and start time are.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.base.processes.process_table import living_process

# In the environment of every daemon, and so of everything that a daemon starts.
MARK = "SLURM_JOBS_TEST_CLUSTER"


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """One process, as /proc knew it."""

    pid: int
    start_ticks: int
    """Clock ticks after boot; field 22 of /proc/PID/stat."""

    def alive(self) -> bool:
        now = identify(self.pid)
        return now is not None and now == self


def identify(pid: int) -> Process | None:
    """Return the living process of this pid, or None if there is none (a zombie is none)."""
    entry = living_process(pid)
    return Process(pid=pid, start_ticks=entry.start_ticks) if entry else None


def parent(pid: int) -> int | None:
    """Return the pid of a living process's parent, or None if there is no such process."""
    entry = living_process(pid)
    return entry.parent if entry else None


def spawn(argv: Sequence[str], *, env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a daemon in its own session, so that the terminal's Ctrl-C does not reach it."""
    with log.open("ab") as out:
        return subprocess.Popen(
            argv,
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o022,
        )


def write_pid_file(path: Path, process: Process) -> None:
    path.write_text(f"{process.pid} {process.start_ticks}\n")


def read_pid_file(path: Path) -> Process | None:
    """Return the process that a pid file names, or None where it does not live any more."""
    try:
        pid, start_ticks = path.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    process = Process(pid=int(pid), start_ticks=int(start_ticks))
    return process if process.alive() else None


def stop(processes: Iterable[Process], *, grace_s: float) -> None:
    """SIGTERM, wait until they are gone, SIGKILL those that are not."""
    left = list(processes)
    for signum, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        left = [process for process in left if process.alive()]
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signum)
        wait_gone(left, timeout_s=wait_s)


def is_readable(descriptor: int, wait_s: float) -> bool:
    """Wait until `descriptor` has data or has ended; select() takes only the first 1,024."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(wait_s * 1000))


def wait_gone(processes: Sequence[Process], *, timeout_s: float) -> None:
    """Return when all have ended, or after timeout_s. Children of ours are reaped."""
    deadline = time.monotonic() + timeout_s
    for process in processes:
        try:
            pidfd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            if process.alive():
                is_readable(pidfd, max(0.0, deadline - time.monotonic()))
        finally:
            os.close(pidfd)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


def strays(folder: Path, slurm_conf: Path) -> list[Process]:
    """Return every living process that belongs to the cluster in `folder`, job processes included.

    Daemons and what they start carry the mark in their environment; jobs carry SLURM_CONF and
    SLURM_JOB_ID. slurmstepd overwrites the memory that its environment stood in when it renames
    itself, so it is found by the log that it holds open, and what is below it by descent.
    """
    parents: dict[int, int] = {}
    ours: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        with contextlib.suppress(OSError):
            parents[pid] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if _is_marked(entry, folder, slurm_conf):
                ours.add(pid)
    ours.discard(os.getpid())
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours |= children
        grown = bool(children)
    return [found for pid in sorted(ours) if (found := identify(pid)) is not None]


def _is_marked(entry: Path, folder: Path, slurm_conf: Path) -> bool:
    environ = (entry / "environ").read_bytes().split(b"\0")
    if f"{MARK}={folder}".encode() in environ:
        return True
    if f"SLURM_CONF={slurm_conf}".encode() in environ:
        return any(word.startswith(b"SLURM_JOB_ID=") for word in environ)
    return _is_step(entry, folder)


def steps(folder: Path) -> list[Process]:
    """Return the living slurmstepd of the cluster in `folder`, one for each step of a job."""
    pids: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and _is_step(entry, folder):
                pids.append(int(entry.name))
    return [step for pid in pids if (step := identify(pid)) is not None]


def _is_step(entry: Path, folder: Path) -> bool:
    if Path((entry / "exe").readlink()).name not in {"slurmstepd", "slurmstepd-wlm"}:  # Debian's
        return False
    return any(str(fd.readlink()).startswith(f"{folder}/") for fd in (entry / "fd").iterdir())
