"""Timed saves of one attempt for the loop: blocking or in the background.

The stall of training is the step's `checkpoint_s` and a span `checkpoint`; the background part
is a span `checkpoint_upload`. Both contribute to the time that a stop takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from pipeline.timing import SpanLog
from pipeline.training.checkpoint.saving import Saver
from pipeline.training.checkpoint.state import Checkpoints
from pipeline.training.ranks import new_host_group
from pipeline.training.stop_time import StopTime
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.stage_config.train import TrainConfig
from slurm_jobs.common.stop import note_stop_time

if TYPE_CHECKING:
    from typing_extensions import Self


class TimedSaver:
    """Saves, writes spans, and estimates the time to stop; closes when its block ends."""

    def __init__(
        self,
        saver: Saver,
        spans: SpanLog,
        *,
        start_step: int,
        is_beside: bool,
        note_stop_time: Callable[[float], None],
    ) -> None:
        """Start without a running save.

        Args:
            saver: Saver to use.
            spans: Spans of this rank.
            start_step: First step of the loop.
            is_beside: True to save in the background if steps follow.
            note_stop_time: Called after each save with the seconds that a stop would take.
        """
        self._saver = saver
        self._spans = spans
        self._is_beside = is_beside
        self._note_stop_time = note_stop_time
        self._stop_time = StopTime(start_step, time.monotonic())
        self._copied_s = 0.0

    def save(self, step: int, loss: float, *, must_end: bool) -> None:
        """Save the state after `step` steps; a collective.

        `must_end`: no step comes after this one, so that the checkpoint must be complete.

        Raises:
            StageError: this save or the one before it failed.
        """
        stood_s = time.monotonic()
        with self._spans.span("checkpoint", step=step):
            self.finish()
            begun_s = time.monotonic()
            if self._is_beside and not must_end:
                self._saver.begin(step, loss)
                self._copied_s = time.monotonic() - begun_s
            else:
                self._saver.save(step, loss)
        ended_s = time.monotonic()
        self._stop_time.after_stall(step, stood_s, ended_s)
        if must_end or not self._is_beside:
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
        self._note_stop_time(self._stop_time.after_save(save_s, beside_s=upload.duration_s))

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
) -> TimedSaver:
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

    return TimedSaver(
        saver,
        spans,
        start_step=start_step,
        is_beside=config.checkpoint.mode == "async",
        note_stop_time=note,
    )
