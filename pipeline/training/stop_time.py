"""How long this training takes to stop: to the end of the step at hand, and to have it saved."""

from __future__ import annotations


class StopTime:
    """Takes the longest save so far, and the longest mean step between two saves.

    A stop saves by itself. One that comes while a save goes on beside the steps waits for that
    first.
    """

    def __init__(self, start_step: int, begun_s: float) -> None:
        self._step = start_step
        self._ended_s = begun_s
        self._longest_save_s = 0.0
        self._longest_beside_s = 0.0
        self._longest_step_s = 0.0

    def after_stall(self, step: int, begun_s: float, ended_s: float) -> None:
        """Take note of steps that were made, and that they go on.

        Args:
            step: steps completed when they stood still for a save.
            begun_s: when they did, on any clock that goes on evenly.
            ended_s: when they went on, on the same.
        """
        num_steps = max(1, step - self._step)
        self._longest_step_s = max(self._longest_step_s, (begun_s - self._ended_s) / num_steps)
        self._step, self._ended_s = step, ended_s

    def after_save(self, save_s: float, *, beside_s: float = 0.0) -> float:
        """The time to stop as it is known now, seconds.

        Args:
            save_s: from when the state was asked for until it was safe.
            beside_s: for how much of that steps went on.
        """
        self._longest_save_s = max(self._longest_save_s, save_s)
        self._longest_beside_s = max(self._longest_beside_s, beside_s)
        return self._longest_step_s + self._longest_beside_s + self._longest_save_s
