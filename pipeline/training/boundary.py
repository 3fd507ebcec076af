"""Agreement of all ranks after each step: whether to save or stop.

And whether a background save has ended on all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.training.ranks import Ranks
from slurm_jobs.common.stage_config.checkpoint import CheckpointConfig
from slurm_jobs.common.stop import stop_requested

_S_PER_MIN = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Decision, equal on every rank."""

    save: bool
    must_end: bool
    """The save must be complete before anything else is done."""
    stop: bool
    upload_ended: bool
    """A background save has ended everywhere: its result can be read."""


class Boundary:
    """One small host collective per step. Only rank 0's clock decides when to save."""

    def __init__(
        self,
        ranks: Ranks,
        config: CheckpointConfig,
        num_steps: int,
        has_upload_ended: Callable[[], bool] = lambda: False,
        *,
        is_stop_requested: Callable[[], bool] = stop_requested,
        read_clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ranks = ranks
        self._config = config
        self._num_steps = num_steps
        self._is_stop_requested = is_stop_requested
        self._has_upload_ended = has_upload_ended
        self._read_clock_s = read_clock_s
        self._last_save_s = read_clock_s()

    def agree(self, num_steps_done: int) -> Agreement:
        """Sum the ranks' requests; every rank must call it after every step.

        Args:
            num_steps_done: Steps completed, this one included.
        """
        stop_here = float(self._is_stop_requested())
        due_here = float(self._ranks.rank == 0 and self._is_time())
        ended_here = float(self._has_upload_ended())
        num_stops, is_due, num_ended = self._ranks.sums([stop_here, due_here, ended_here])
        is_last = num_steps_done == self._num_steps
        every = self._config.every_steps
        is_wanted = num_stops or is_due or is_last or (every and num_steps_done % every == 0)
        if is_wanted:
            self._last_save_s = self._read_clock_s()
        return Agreement(
            save=bool(is_wanted),
            must_end=is_last or bool(num_stops),
            stop=bool(num_stops) and not is_last,
            upload_ended=num_ended == self._ranks.num_ranks,
        )

    def _is_time(self) -> bool:
        every_min = self._config.every_min
        elapsed_s = self._read_clock_s() - self._last_save_s
        return every_min is not None and elapsed_s >= every_min * _S_PER_MIN
