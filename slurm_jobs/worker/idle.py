"""Place of a function that uses no processor time for long: what its main thread waits for.

Such a function may hang, for example in a join, or wait for a download. Only the user can tell, so
the keeper names the place and never ends the rank. A heartbeat shows more, so a rank that has one
is not watched here.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.processes.process_table import descendants
from slurm_jobs.formats.records.heartbeat import heartbeat_path, stacks_path
from slurm_jobs.formats.records.rank_note import RankNote
from slurm_jobs.worker.attempt_notes import read_rank_note, write_rank_note
from slurm_jobs.worker.hangs import DUMP_S, describe_cause
from slurm_jobs.worker.late_exit import returned_path, seconds_of
from slurm_jobs.worker.stacks import read_stacks, request_stacks

PATIENCE_S = 600.0
"""Time without work before the place is named. Locks, retries and starting downloads rarely take
that long, and most time limits are several times longer."""
PATIENCE_VARIABLE = "SLURM_JOBS_IDLE_PATIENCE_S"
"""Variable that replaces the patience, for tests."""
BUSY_SHARE = 0.01
"""Share of one core over the patience above which a rank works. Measured: a loop of Python that
sleeps for 10 ms takes 0.5 % of a core, one that sleeps for 50 ms 0.1 %. A download takes 1 % at
about 8 MB/s, so a slow one is named."""
MOST_NAMED = 3
"""Number of times that a rank is named."""
_MOST_REQUESTS = 30
"""Number of requests for stacks. A function that works again before its stacks come is not named,
and each request adds to the file of stacks."""
_LOOKS_A_PATIENCE = 10
"""A look reads all processes of the node, which takes 40 us for each."""
_SUSPENDED_S = 10.0
"""Delay of a look after which the job or the node must have been suspended."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class IdleWatch:
    """Watch over the processes of one rank. It runs in their ancestor, the rank's keeper."""

    def __init__(self, task_dir: Path, rank: int, node: str, function_pid: Callable[[], int]):
        self._task_dir, self._rank, self._node = task_dir, rank, node
        self._function_pid = function_pid
        self._patience_s = _patience_s()
        self._num_left, self._num_requests_left = MOST_NAMED, _MOST_REQUESTS
        self._is_named = False
        """True if the place was named, and no work has been seen since."""
        self._read_at_s: float | None = None
        """Time by which the rank has written the requested stacks, monotonic."""
        self._since_s = self._look_at_s = time.monotonic()
        """Begin of this patience, and the time of the next look."""
        self._ticks = 0
        """Processor time until this patience began."""

    def check(self) -> None:
        """Look at the processor time if it is time to, and name the place; call it often."""
        now_s = time.monotonic()
        if self._read_at_s is not None and now_s >= self._read_at_s:
            self._read_at_s = None
            self._name_place()
        if now_s < self._look_at_s or not self._is_watched():
            return
        ticks = sum(process.cpu_ticks for process in descendants(os.getpid()))
        # The sum falls if a child has ended whose time its parent did not collect.
        is_idle = 0 <= ticks - self._ticks <= BUSY_SHARE * self._patience_s * _TICKS_PER_S
        if not is_idle or now_s > self._look_at_s + _SUSPENDED_S:
            self._begin_patience(now_s, ticks)
            self._withdraw_note()
        elif now_s >= self._since_s + self._patience_s:
            self._begin_patience(now_s, ticks)
            if not self._is_named:
                self._is_named = True
                self._num_requests_left -= 1
                self._read_at_s = now_s + DUMP_S
                request_stacks(self._task_dir, self._rank, self._function_pid())
        else:
            self._look_at_s = now_s + self._patience_s / _LOOKS_A_PATIENCE

    def _withdraw_note(self) -> None:
        if self._is_named:
            self._is_named, self._read_at_s = False, None
            with suppress(OSError):
                _path(self._task_dir, self._rank).unlink(missing_ok=True)

    def _begin_patience(self, now_s: float, ticks: int) -> None:
        self._since_s, self._ticks = now_s, ticks
        self._look_at_s = now_s + self._patience_s / _LOOKS_A_PATIENCE

    def _is_watched(self) -> bool:
        may_be_named = self._num_left > 0 and self._num_requests_left > 0
        if not may_be_named and not self._is_named:
            return False
        has_heartbeat = heartbeat_path(self._task_dir, self._rank).exists()
        return not has_heartbeat and not returned_path(self._task_dir, self._rank).exists()

    def _name_place(self) -> None:
        """Name the place in the log, and in a note for `status`."""
        stacks = read_stacks(self._task_dir, self._rank)
        if not stacks.was_asked:  # it could not register
            return
        self._num_left -= 1
        _, place = describe_cause({self._rank: stacks})
        idle = f"has used almost no processor time for {self._patience_s / 60:.3g} min"
        note = RankNote(
            rank=self._rank,
            node=self._node,
            after=f" {idle}: it {place}",
            stacks=str(stacks_path(self._task_dir, self._rank)),
        )
        with suppress(OSError):  # the disk may be full
            print(f"slurm-jobs: {note.text}", file=sys.stderr, flush=True)
        write_rank_note(_path(self._task_dir, self._rank), note)


def idle_note(task_dir: Path) -> RankNote | None:
    """Return where the first idle rank of a running attempt waits; None if no rank is idle."""
    paths = sorted(task_dir.glob("rank-*.idle.json"))
    note = read_rank_note(paths[0]) if paths else None
    if note is None:  # the rank may work again, and the note is gone
        return None
    return replace(note, more=f" (and {len(paths) - 1} more idle)" if len(paths) > 1 else "")


def _patience_s() -> float:
    try:
        return seconds_of(PATIENCE_VARIABLE, PATIENCE_S)
    except StageConfigError as error:  # the rank has started, and must not end for it
        with suppress(OSError):
            print(f"slurm-jobs: {error}. It is ignored", file=sys.stderr, flush=True)
        return PATIENCE_S


def _path(task_dir: Path, rank: int) -> Path:
    return task_dir / f"rank-{rank:05d}.idle.json"
