"""What all ranks agree on before a step's update: is it sound, the loss, to save, to stop.

And whether a save that goes on beside the steps has ended on all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.training.ranks import Ranks
from slurm_jobs.common.stage_config.checkpoint import CheckpointConfig
from slurm_jobs.common.stop import stop_requested

_S_PER_MIN = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The same on every rank."""

    loss: float
    """Of the step, summed over the ranks."""
    is_finite: bool
    """Loss and gradient norm, on every rank, or `skip`; if not, there is nothing to save."""
    skip: bool
    """A loss or a gradient overflowed somewhere, as fp16's may: no rank applies its update."""
    save: bool
    must_end: bool
    """What is saved now must be safe before anything else is done."""
    stop: bool
    upload_ended: bool
    """A save that went on beside the steps has ended everywhere: time to see what came of it."""


class Boundary:
    """One small collective a step. Rank 0's clock alone says when a checkpoint is due.

    `may_overflow`: a step whose loss or gradient is not finite is skipped. Scaling does not change
    the loss, but activations of single samples leave the range of fp16 too; if all samples do, the
    limit of skips in a row ends the attempt.
    """

    def __init__(
        self,
        ranks: Ranks,
        config: CheckpointConfig,
        num_steps: int,
        has_upload_ended: Callable[[], bool] = lambda: False,
        *,
        may_overflow: bool = False,
        is_stop_requested: Callable[[], bool] = stop_requested,
        read_clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ranks = ranks
        self._config = config
        self._num_steps = num_steps
        self._may_overflow = may_overflow
        self._is_stop_requested = is_stop_requested
        self._has_upload_ended = has_upload_ended
        self._read_clock_s = read_clock_s
        self._last_save_s = read_clock_s()

    def agree(self, num_steps_done: int, local_loss: float, grad_norm: float) -> Verdict:
        """Sum the ranks' losses, faults and wishes; every rank must call it in every step.

        Args:
            num_steps_done: steps completed once this one's update is made.
            local_loss: this rank's part of the step's.
            grad_norm: before clipping.
        """
        bad_loss_here = float(not math.isfinite(local_loss))
        bad_norm_here = float(not math.isfinite(grad_norm))
        stop_here = float(self._is_stop_requested())
        due_here = float(self._ranks.rank == 0 and self._is_time())
        ended_here = float(self._has_upload_ended())
        loss, num_bad_losses, num_bad_norms, num_stops, is_due, num_ended = self._ranks.sums(
            [local_loss, bad_loss_here, bad_norm_here, stop_here, due_here, ended_here]
        )
        is_bad = bool(num_bad_losses or num_bad_norms)
        skip = is_bad and self._may_overflow
        is_finite = skip or not is_bad
        is_last = num_steps_done == self._num_steps
        every = self._config.every_steps
        is_wanted = num_stops or is_due or is_last or (every and num_steps_done % every == 0)
        save = bool(is_wanted and is_finite)
        if save:
            self._last_save_s = self._read_clock_s()
        return Verdict(
            loss=loss,
            is_finite=is_finite,
            skip=skip,
            save=save,
            must_end=is_last or bool(num_stops),
            stop=bool(num_stops) and not is_last,
            upload_ended=num_ended == self._ranks.num_ranks,
        )

    def _is_time(self) -> bool:
        every_min = self._config.every_min
        elapsed_s = self._read_clock_s() - self._last_save_s
        return every_min is not None and elapsed_s >= every_min * _S_PER_MIN
