"""Device times of a step, from marks in the device's own queue that are read later.

A mark costs the host a few microseconds and makes it wait for nothing. The device passes a mark
when all that was queued before it is done, so two marks are apart by the time that the work
between them took, and by what the device stood idle in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch

from slurm_jobs.common.timings import DEVICE_PHASES


class DeviceClock(Protocol):
    """Marks in the queue of one device; `Any` is the clock's own kind of mark."""

    def mark(self) -> Any:
        """Put a mark at the end of the queue."""

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has come to it; does not wait."""

    def wait(self, mark: Any) -> None:
        """Wait until the device has come to it."""

    def seconds_between(self, first: Any, last: Any) -> float:
        """Between two marks that have been passed."""

    def give_back(self, marks: Iterable[Any]) -> None:
        """Nobody will look at these again."""


class CudaClock:
    """CUDA events in the current stream; they are used again, so there are as many as wait."""

    def __init__(self) -> None:
        self._free: list[torch.cuda.Event] = []

    def mark(self) -> torch.cuda.Event:
        """As `DeviceClock`."""
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def has_passed(self, mark: torch.cuda.Event) -> bool:
        """As `DeviceClock`."""
        return bool(mark.query())

    def wait(self, mark: torch.cuda.Event) -> None:
        """As `DeviceClock`."""
        mark.synchronize()  # SYNC: after the last step

    def seconds_between(self, first: torch.cuda.Event, last: torch.cuda.Event) -> float:
        """As `DeviceClock`; the driver resolves half a microsecond."""
        return float(first.elapsed_time(last)) / 1e3

    def give_back(self, marks: Iterable[torch.cuda.Event]) -> None:
        """As `DeviceClock`."""
        self._free.extend(marks)


class DeviceStep:
    """The marks of one step: one where it begins, and one at each lap."""

    def __init__(self, clock: DeviceClock) -> None:
        self._clock = clock
        self._marks = [clock.mark()]
        self._phases: list[str] = []

    def lap(self, phase: str) -> None:
        """Give what the device does between the last mark and this one to `phase`."""
        self._marks.append(self._clock.mark())
        self._phases.append(phase)

    def has_passed(self) -> bool:
        """Whether the device has come to the last mark, and so to all."""
        return self._clock.has_passed(self._marks[-1])

    def wait(self) -> None:
        """Until it has."""
        self._clock.wait(self._marks[-1])

    def read(self) -> Mapping[str, float]:
        """Seconds by field of `DEVICE_FIELDS`, of a step that has passed; ends its use."""
        found = dict.fromkeys(DEVICE_PHASES, 0.0)
        for index, phase in enumerate(self._phases):
            if phase in found:
                first, last = self._marks[index : index + 2]
                found[phase] += self._clock.seconds_between(first, last)
        step_s = self._clock.seconds_between(self._marks[0], self._marks[-1])
        self._clock.give_back(self._marks)
        return {**{f"device_{name}": s for name, s in found.items()}, "device_step_s": step_s}
