"""Processes of this host, from /proc/PID/stat (proc(5)), and whether they are alive."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_ENDED_STATES = frozenset("ZXx")


class ProcessEntry(NamedTuple):
    """Process as the kernel lists it."""

    pid: int
    state: str
    parent: int
    group: int
    num_threads: int
    start_ticks: int
    """Start time, in kernel ticks since the machine's start."""
    cpu_ticks: int
    """Processor time of it and of its ended children that it has waited for, in kernel ticks."""

    @property
    def has_ended(self) -> bool:
        """Return whether it has ended, and only its entry is left because nothing reaped it.

        The first thread of a living process may have ended alone, which shows the same state.
        """
        return self.state in _ENDED_STATES and self.num_threads <= 1


def processes() -> list[ProcessEntry]:
    """Return every process of this host, including those that have ended and were not reaped."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [entry for pid in pids if (entry := process_entry(pid)) is not None]


def descendants(ancestor: int) -> list[ProcessEntry]:
    """Return the children of a process, their children, and so on."""
    children: dict[int, list[ProcessEntry]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process)
    below = children.pop(ancestor, [])
    for process in below:
        below += children.pop(process.pid, [])
    return below


def process_entry(pid: int) -> ProcessEntry | None:
    """Return one process, which may have ended; None if there is none."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        state, *fields = text.rpartition(")")[2].split()  # its name may contain anything
        return ProcessEntry(
            pid=pid,
            state=state,
            parent=int(fields[0]),
            group=int(fields[1]),
            num_threads=int(fields[16]),
            start_ticks=int(fields[18]),
            cpu_ticks=sum(int(field) for field in fields[10:14]),
        )
    return None


def living_process(pid: int) -> ProcessEntry | None:
    """Return a process that is alive; None if it has ended, reaped or not (a zombie)."""
    entry = process_entry(pid)
    return None if entry is None or entry.has_ended else entry
