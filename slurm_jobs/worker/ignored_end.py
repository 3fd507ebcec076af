"""Place of a stage that was sent SIGTERM and does not end: what its main thread waits for.

SIGKILL follows SIGTERM, so a function that hangs leaves no exception. The supervisor has its ranks
write their stacks before that, and notes the place in the attempt's folder, because Slurm may kill
the supervisor together with the ranks.
"""

from __future__ import annotations

import time
from pathlib import Path

from slurm_jobs.formats.records.rank_note import RankNote
from slurm_jobs.worker.attempt_notes import read_rank_note, write_note, write_rank_note
from slurm_jobs.worker.hangs import find_cause
from slurm_jobs.worker.stacks import read_stacks

PATIENCE_S = 2.0
"""Time that a stage may take to end after SIGTERM. The local scheduler sends SIGKILL after 10 s,
Slurm after `KillWait`, which is 30 s by default."""
_WRITING_S = 1.0
"""Time in which ranks write their stacks."""


class IgnoredEnd:
    """Watch over one attempt's ranks after SIGTERM."""

    def __init__(self, task_dir: Path, num_ranks: int) -> None:
        self._task_dir, self._num_ranks = task_dir, num_ranks
        self._ask_at_s = time.monotonic() + PATIENCE_S
        self._read_at_s: float | None = None
        self._has_read = False
        self.text: str | None = None
        """Clause for the record, once the place is known."""

    def asks_for_stacks(self) -> bool:
        """Return whether the ranks must write their stacks now, which is once; call it often."""
        if self._read_at_s is not None or time.monotonic() < self._ask_at_s:
            return False
        self._read_at_s = time.monotonic() + _WRITING_S
        return True

    def finds_place(self) -> bool:
        """Return whether the place has just become known, and note it; call it often."""
        if self._has_read or self._read_at_s is None or time.monotonic() < self._read_at_s:
            return False
        self._has_read = True
        ranks = range(self._num_ranks)
        if not any(read_stacks(self._task_dir, rank).was_asked for rank in ranks):
            return False  # srun does not pass requests on any more
        cause = find_cause(self._task_dir, self._num_ranks)
        if cause is None:
            return False
        when = f"{PATIENCE_S:.0f} s after SIGTERM "
        self.text = f"{when}{cause.text}"
        if cause.node is None:
            write_note(_path(self._task_dir), self.text)
            return True
        note = RankNote(
            before=when,
            rank=cause.rank,
            node=cause.node,
            after=f" {cause.doing}",
            stacks=str(cause.stacks),
        )
        write_rank_note(_path(self._task_dir), note)
        return True


def ignored_end_note(task_dir: Path) -> RankNote | None:
    """Return where a stage was that did not end after SIGTERM; None if that was not noted."""
    return read_rank_note(_path(task_dir))


def _path(task_dir: Path) -> Path:
    return task_dir / "ignored-end.json"
