"""Saves of one attempt for the loop, whose time is measured: blocking or in the background.

The stall of training is the step's `checkpoint_s` and a span `checkpoint`; the background part
is a span `checkpoint_upload`. Both contribute to the time that a stop takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from pipeline.timing.span_log import SpanLog
from pipeline.train.checkpoints.stop_time import StopTime
from pipeline.train.checkpoints.training_state import Checkpoints
from pipeline.train.ranks.process_group import new_host_group
from slurm_jobs.base.processes.stop_requests import note_stop_time
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.records.task_context import TaskContext

if TYPE_CHECKING:
    from typing_extensions import Self
from pipeline.train.checkpoints.saver import Saver


class MeasuredSaver:
    """Saves, writes spans, and estimates the time to stop; closes when its block ends."""

    def __init__(
        self,
        saver: Saver,
        spans: SpanLog,
        *,
        start_step: int,
        in_background: bool,
        note_stop_time: Callable[[float], None],
    ) -> None:
        """Start without a running save.

        With `in_background` it saves in the background if steps follow. `note_stop_time` is called
        after each save with the seconds that a stop would take.
        """
        self._saver = saver
        self._spans = spans
        self._in_background = in_background
        self._note_stop_time = note_stop_time
        self._stop_time = StopTime(start_step, time.monotonic())
        self._copied_s = 0.0

    def save(self, step: int, loss: float, *, must_end: bool) -> None:
        """Save the state after `step` steps; a collective.

        `must_end`: no step comes after this one, so that the checkpoint must be complete.

        Raises:
            StageError: this save or the one before it failed.
        """
        stall_start_s = time.monotonic()
        with self._spans.span("checkpoint", step=step):
            self.finish()
            begun_s = time.monotonic()
            if self._in_background and not must_end:
                self._saver.begin(step, loss)
                self._copied_s = time.monotonic() - begun_s
            else:
                self._saver.save(step, loss)
        ended_s = time.monotonic()
        self._stop_time.after_stall(step, stall_start_s, ended_s)
        if must_end or not self._in_background:
            self._note_stop_time(self._stop_time.after_save(ended_s - begun_s))

    def has_ended_here(self) -> bool:
        """Check whether this rank's part of a background save has ended."""
        return self._saver.has_ended_here()

    def finish(self) -> None:
        """Wait for the background save, if there is one; a collective.

        Raises:
            StageError: it failed, on any rank.
        """
        upload = self._saver.finish()
        if upload is None:
            return
        self._spans.add(
            "checkpoint_upload",
            start_unix_s=upload.start_unix_s,
            duration_s=upload.duration_s,
            step=upload.step,
        )
        save_s = self._copied_s + upload.duration_s
        self._note_stop_time(self._stop_time.after_save(save_s, background_s=upload.duration_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._saver.close()


def make_saver(
    config: TrainConfig,
    checkpoints: Checkpoints,
    context: TaskContext,
    spans: SpanLog,
    start_step: int,
) -> MeasuredSaver:
    """Make the config's saver; a collective. Rank 0 reports the time to stop to the supervisor."""
    is_gpu = config.device == "cuda"
    saver = Saver(
        checkpoints,
        keep_last=config.checkpoint.keep_last,
        group=new_host_group(timeout_min=config.collective_timeout_min),
        device=torch.device("cuda", torch.cuda.current_device()) if is_gpu else torch.device("cpu"),
    )

    def note(stop_s: float) -> None:
        if context.rank == 0:
            note_stop_time(context.task_dir, stop_s)

    return MeasuredSaver(
        saver,
        spans,
        start_step=start_step,
        in_background=config.checkpoint.mode == "async",
        note_stop_time=note,
    )
