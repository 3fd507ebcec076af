"""Time that this training takes to stop: to finish the current step and to save."""

from __future__ import annotations


class StopTime:
    """Tracks the longest save so far, and the longest mean step between two saves.

    A stop saves. If a background save is running, the stop waits for it first.
    """

    def __init__(self, start_step: int, begun_s: float) -> None:
        self._step = start_step
        self._ended_s = begun_s
        self._longest_save_s = 0.0
        self._longest_background_s = 0.0
        self._longest_step_s = 0.0

    def after_stall(self, step: int, begun_s: float, ended_s: float) -> None:
        """Record steps that ended with a stall for a save.

        The stall began at `begun_s`, with `step` steps completed; both times are of one steady
        clock.
        """
        num_steps = max(1, step - self._step)
        self._longest_step_s = max(self._longest_step_s, (begun_s - self._ended_s) / num_steps)
        self._step, self._ended_s = step, ended_s

    def after_save(self, save_s: float, *, background_s: float = 0.0) -> float:
        """Return the current estimate of the time to stop, in seconds.

        A save took `save_s` from the request for the state until it was safe; steps continued
        during `background_s` of it.
        """
        self._longest_save_s = max(self._longest_save_s, save_s)
        self._longest_background_s = max(self._longest_background_s, background_s)
        return self._longest_step_s + self._longest_background_s + self._longest_save_s
