"""How long this training takes to stop: to the end of the step at hand, and one save."""

from __future__ import annotations


class StopTime:
    """Takes the longest save so far, and the longest mean step between two saves."""

    def __init__(self, start_step: int, begun_s: float) -> None:
        self._step = start_step
        self._ended_s = begun_s
        self._longest_save_s = 0.0
        self._longest_step_s = 0.0

    def after_save(self, step: int, begun_s: float, ended_s: float) -> float:
        """The time to stop as it is known now, seconds.

        Args:
            step: steps completed when the save began.
            begun_s: when it began, on any clock that goes on evenly.
            ended_s: when it ended, on the same.
        """
        num_steps = max(1, step - self._step)
        self._longest_step_s = max(self._longest_step_s, (begun_s - self._ended_s) / num_steps)
        self._longest_save_s = max(self._longest_save_s, ended_s - begun_s)
        self._step, self._ended_s = step, ended_s
        return self._longest_step_s + self._longest_save_s
