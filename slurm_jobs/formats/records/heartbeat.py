"""Heartbeat of a rank: a small file that shows the supervisor that the rank makes progress.

A beat is a lap of a step, the start or end of a span, or a piece of work inside one: a batch of an
evaluation, a block of a file that training waits for, a sample that the loader has read. The loader
reads at most a few steps ahead, so its threads do not hide a main thread that hangs.

The file is rewritten in place at most every few seconds, without a flush: a slow file system must
not slow down the steps. Readers compare content, never times, because the clocks of nodes differ.
"""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from slurm_jobs.base.regular_files import read_bytes

MAX_INTERVAL_S = 10.0
"""Longest time between two writes; shorter if the patience is short."""
_INTERVALS_A_PATIENCE = 20
_MIN_INTERVAL_S = 0.05
_NUM_BYTES = 512
"""Size of the file: so short a write is read completely or not at all."""
_NUM_RECENT_STEPS = 64


def heartbeat_path(task_dir: Path, rank: int) -> Path:
    """Return the file with a rank's heartbeat."""
    return task_dir / f"rank-{rank:05d}.heartbeat"


def stacks_path(task_dir: Path, rank: int) -> Path:
    """Return the file to which the Python stacks of a rank are written on request."""
    return task_dir / f"rank-{rank:05d}.stacks.txt"


class Heartbeat:
    """Writer of one rank's heartbeat; may be used from several threads."""

    def __init__(self, path: Path, *, stall_s: float, collective_s: float) -> None:
        """Write the first beat; `stall_s` is the patience, `collective_s` that of a collective."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        close = weakref.finalize(self, os.close, self._descriptor)
        close.atexit = False  # threads may beat until the end
        self._lock = threading.RLock()  # garbage collection during a write may end a span
        self._interval_s = max(
            _MIN_INTERVAL_S, min(MAX_INTERVAL_S, stall_s / _INTERVALS_A_PATIENCE)
        )
        self._due_s = 0.0
        self._num_beats = 0
        self._steps_s: deque[float] = deque(maxlen=_NUM_RECENT_STEPS)
        self._num_steps = 0
        self._longest_step_s = 0.0
        self._limits = {"stall_s": stall_s, "collective_s": collective_s}
        self.doing = "start"
        """Name of the innermost open span, or `steps`."""
        self._write()

    @property
    def is_quiet(self) -> bool:
        """Return whether no beat has come since a write was due."""
        return time.monotonic() > self._due_s

    def beat(self) -> None:
        """Show progress; nearly free if no write is due."""
        if time.monotonic() >= self._due_s:
            self._write()

    def begin(self, doing: str) -> None:
        """Write at once what begins now."""
        self.doing = doing
        self._write()

    def step_done(self, duration_s: float) -> None:
        """Count a step; the patience depends on its duration, without evaluations and similar."""
        with self._lock:
            self._num_steps += 1
            self._steps_s.append(duration_s)
            self._longest_step_s = max(self._longest_step_s, duration_s)

    def steps_change(self) -> None:
        """Count the next steps as first ones: they may compile again, as in another phase."""
        self._num_steps = 0

    def _write(self) -> None:
        with self._lock:
            self._num_beats += 1
            values: dict[str, Any] = {
                "beats": self._num_beats,
                "doing": self.doing,
                "steps": self._num_steps,
                "median_step_s": statistics.median(self._steps_s) if self._steps_s else 0.0,
                "longest_step_s": self._longest_step_s,
                **self._limits,
            }
            with suppress(OSError):  # a full disk must not end a training
                os.pwrite(self._descriptor, f"{json.dumps(values):<{_NUM_BYTES - 1}}\n".encode(), 0)
            self._due_s = time.monotonic() + self._interval_s


_current: Heartbeat | None = None


def start_heartbeat(
    task_dir: Path, rank: int, *, stall_timeout_min: float | None, collective_timeout_min: float
) -> None:
    """Start this process's heartbeat; without a patience there is none, and no supervision.

    Raises:
        OSError: the file cannot be written.
    """
    global _current  # noqa: PLW0603 - one process is one rank
    _current = None
    if stall_timeout_min is not None:
        _current = Heartbeat(
            heartbeat_path(task_dir, rank),
            stall_s=stall_timeout_min * 60,
            collective_s=collective_timeout_min * 60,
        )


def beat() -> None:
    """Show progress, if this process has a heartbeat."""
    if _current is not None:
        _current.beat()


def is_quiet() -> bool:
    """Return whether this process has a heartbeat, and a beat is overdue."""
    return _current is not None and _current.is_quiet


def begin_steps() -> None:
    """Report that steps begin, to which the patience for steps applies."""
    if _current is not None and _current.doing != "steps":
        _current.begin("steps")


def steps_change() -> None:
    """Report that the next steps are of another kind, so that the first ones may be slow."""
    if _current is not None:
        _current.steps_change()


def end_steps() -> None:
    """Report that the last step of this attempt is done."""
    if _current is not None:
        _current.begin("after the steps")


def end_step(duration_s: float) -> None:
    """Count a step that has ended."""
    if _current is not None:
        _current.step_done(duration_s)


@contextmanager
def doing(name: str) -> Iterator[None]:
    """Name the work of the block; at its end the outer name is restored."""
    beating = _current
    if beating is None:
        yield
        return
    outer = beating.doing
    beating.begin(name)
    try:
        yield
    finally:
        beating.begin(outer)


def read_heartbeat(task_dir: Path, rank: int) -> dict[str, Any] | None:
    """Return a rank's last beat; None if there is no readable one."""
    with suppress(OSError, ValueError):
        values = json.loads(read_bytes(heartbeat_path(task_dir, rank)))
        if isinstance(values, dict):
            return values
    return None
