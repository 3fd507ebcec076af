"""What a training says while it runs: a progress file, and a quiet line now and then."""

from __future__ import annotations

import logging
import time

from pipeline.timing import StepCounts
from slurm_jobs.common.progress import Progress

log = logging.getLogger(__name__)


class TrainingReporter:
    """Called after every step on every rank; rank 0 writes."""

    def __init__(
        self, progress: Progress | None, *, num_steps: int, num_ranks: int, log_every_steps: int
    ) -> None:
        """`progress` is None on all ranks but 0."""
        self._progress = progress
        self._num_steps = num_steps
        self._num_ranks = num_ranks
        self._log_every_steps = log_every_steps
        self._start_s = self._line_s = time.monotonic()
        self._line_tokens = 0
        self.num_tokens = 0
        """Of this rank, padding not counted."""

    def __call__(self, num_steps_done: int, loss: float, counts: StepCounts) -> None:
        """Take note of a step."""
        self.num_tokens += counts.num_tokens
        if self._progress is None:
            return
        self._progress.update(num_steps_done, detail=f"loss {loss:.4f}")
        if num_steps_done % self._log_every_steps and num_steps_done != self._num_steps:
            return
        now_s = time.monotonic()
        # Ranks have equal work, so that this rank's tokens stand for the others'.
        tokens = (self.num_tokens - self._line_tokens) * self._num_ranks
        rate = tokens / max(1e-9, now_s - self._line_s)
        log.info(
            "step %d/%d: loss %.4f, %.0f tokens/s", num_steps_done, self._num_steps, loss, rate
        )
        self._line_s, self._line_tokens = now_s, self.num_tokens

    @property
    def elapsed_s(self) -> float:
        """Since the loop began."""
        return time.monotonic() - self._start_s
