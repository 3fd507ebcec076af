"""Device times of a step, from events in the device's queue that are read later.

Recording an event costs the host a few microseconds and no wait. The device passes an event
when all work queued before it is done, so the time between two events is that of the work
between them, and of the device's idle time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from slurm_jobs.formats.timings.step_records import DEVICE_PHASES


class CudaClock:
    """CUDA events in the current stream; they are reused, so there are as many as pending."""

    def __init__(self) -> None:
        self._free: list[torch.cuda.Event] = []

    def mark(self) -> torch.cuda.Event:
        """Record an event at the end of the queue."""
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def has_passed(self, mark: torch.cuda.Event) -> bool:
        """Check whether the device has passed the event; does not wait."""
        return bool(mark.query())

    def wait(self, mark: torch.cuda.Event) -> None:
        """Wait until the device has passed it."""
        mark.synchronize()  # SYNC: after the last step

    def seconds_between(self, first: torch.cuda.Event, last: torch.cuda.Event) -> float:
        """Return seconds between two events; the driver resolves half a microsecond."""
        return float(first.elapsed_time(last)) / 1e3

    def give_back(self, marks: Iterable[torch.cuda.Event]) -> None:
        """Recycle events that are no longer needed."""
        self._free.extend(marks)


class DeviceStep:
    """Events of one step: one at its start, and one at each lap."""

    def __init__(self, clock: CudaClock) -> None:
        self._clock = clock
        self._marks = [clock.mark()]
        self._phases: list[str] = []

    def lap(self, phase: str) -> None:
        """Assign the device's work between the last event and this one to `phase`."""
        self._marks.append(self._clock.mark())
        self._phases.append(phase)

    def has_passed(self) -> bool:
        """Check whether the device has passed the last event, and so all."""
        return self._clock.has_passed(self._marks[-1])

    def wait(self) -> None:
        """Wait until it has."""
        self._clock.wait(self._marks[-1])

    def read(self) -> Mapping[str, float]:
        """Return seconds by field of `DEVICE_FIELDS` of a passed step; recycles the events."""
        seconds = dict.fromkeys(DEVICE_PHASES, 0.0)
        for index, phase in enumerate(self._phases):
            if phase in seconds:
                first, last = self._marks[index : index + 2]
                seconds[phase] += self._clock.seconds_between(first, last)
        step_s = self._clock.seconds_between(self._marks[0], self._marks[-1])
        self._clock.give_back(self._marks)
        return {**{f"device_{name}": s for name, s in seconds.items()}, "device_step_s": step_s}
