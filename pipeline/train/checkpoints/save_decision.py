"""Decision, after each step, whether all ranks save a checkpoint and whether they stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.processes.stop_requests import stop_requested
from slurm_jobs.formats.configs.training_parts import CheckpointConfig

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
    """Agreement of all ranks after each step, by one small collective of the hosts.

    Only rank 0's clock decides when to save.
    """

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

        `num_steps_done` includes that step.
        """
        every_min, every_steps = self._config.every_min, self._config.every_steps
        is_time = (
            self._ranks.rank == 0
            and every_min is not None
            and self._read_clock_s() - self._last_save_s >= every_min * _S_PER_MIN
        )
        requests = (self._is_stop_requested(), is_time, self._has_upload_ended())
        num_stops, is_due, num_ended = self._ranks.sums([float(each) for each in requests])
        is_last = num_steps_done == self._num_steps
        is_wanted = num_stops > 0 or is_due > 0 or is_last
        if every_steps is not None:
            is_wanted = is_wanted or num_steps_done % every_steps == 0
        if is_wanted:
            self._last_save_s = self._read_clock_s()
        return Agreement(
            save=is_wanted,
            must_end=is_last or num_stops > 0,
            stop=num_stops > 0 and not is_last,
            upload_ended=num_ended == self._ranks.num_ranks,
        )
