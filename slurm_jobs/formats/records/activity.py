"""Activities of a training while it makes no steps, which `status` shows.

Rank 0 writes it to its task's progress file when it begins something else: a few small files in
minutes, which a network file system does not notice. Nothing is written when a piece of work ends,
except while steps are made, so that an evaluation among the steps is not shown during the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from slurm_jobs.formats.records import heartbeat
from slurm_jobs.formats.records.progress_file import Progress

Activity = Literal[
    "importing",
    "waiting for the other ranks",
    "running preflight checks",
    "staging in",
    "reading held-out samples",
    "loading the model",
    "planning batches",
    "trying numbers of microbatches",
    "loading a checkpoint",
    "starting trackers",
    "compiling",
    "evaluating",
    "saving a checkpoint",
    "writing a profile",
    "exporting the model",
]
_OF_SPAN: Mapping[str, Activity] = {
    "process_group": "waiting for the other ranks",
    "preflight": "running preflight checks",
    "stage_in": "staging in",
    "heldout_check": "reading held-out samples",
    "heldout_encode": "reading held-out samples",
    "model_build": "loading the model",
    "batch_plan": "planning batches",
    "microbatch_search": "trying numbers of microbatches",
    "checkpoint_load": "loading a checkpoint",
    "trackers_start": "starting trackers",
    "compilation": "compiling",
    "evaluation": "evaluating",
    "checkpoint": "saving a checkpoint",
    "profile_write": "writing a profile",
    "export": "exporting the model",
}
"""Activities by the names of the spans that they are timed as; other spans are short."""


class ActiveProgress(Progress):
    """Progress of a task that also does other things than what it counts."""

    def __init__(self, task_dir: Path) -> None:
        super().__init__(task_dir, "", 0)
        self.num_done = 0
        self._detail = ""
        self._activity: Activity | None = None
        self._depth = 0
        self._is_counting = False

    def count(self, unit: str, total: int) -> None:
        """Name what is counted, once that is known."""
        self.unit, self.total = unit, total

    def update(self, done: int, *, detail: str = "") -> None:
        """Record that `done` of `total` are done."""
        self.num_done, self._detail = done, detail
        super().update(done, detail=detail)

    def begin_counting(self) -> None:
        """Show that the counted work continues, now and after each other activity."""
        if not self._is_counting:
            self._is_counting = True
            self.show(None)

    def end_counting(self) -> None:
        """Show from now on the last activity until the next one begins."""
        self._is_counting = False

    @contextmanager
    def doing(self, activity: Activity) -> Iterator[None]:
        """Show an activity while the block runs."""
        outer = self._activity
        self.show(activity)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth or self._is_counting:
                self.show(outer)

    def show(self, activity: Activity | None) -> None:
        """Write the activity if it is another one."""
        if activity == self._activity:
            return
        self._activity = activity
        with suppress(OSError):  # a full disk must not end a training
            self._write(self.num_done, detail=self._detail, activity=activity)


_current: ActiveProgress | None = None


@contextmanager
def active_progress(task_dir: Path, rank: int) -> Iterator[None]:
    """Show what rank 0 does while the block runs, which begins with its imports."""
    global _current  # noqa: PLW0603 - one process is one rank
    if rank == 0:
        _current = ActiveProgress(task_dir)
        _current.show("importing")
    try:
        yield
    finally:
        _current = None


def current_progress() -> ActiveProgress | None:
    """Return the progress that this process shows; None on all ranks but 0."""
    return _current


@contextmanager
def doing(span: str) -> Iterator[None]:
    """Name the work of the block, by its span, for the supervisor and in the task's progress."""
    activity, progress = _OF_SPAN.get(span), _current
    with heartbeat.doing(span):
        if activity is None or progress is None:
            yield
            return
        with progress.doing(activity):
            yield


def begin_steps() -> None:
    """Report that steps begin; does nothing from the second one on."""
    heartbeat.begin_steps()
    if _current is not None:
        _current.begin_counting()


def end_steps() -> None:
    """Report that the last step of this attempt is done."""
    heartbeat.end_steps()
    if _current is not None:
        _current.end_counting()
