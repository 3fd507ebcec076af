"""Recorder of every step: laps of one clock, packed and written rarely.

It adds no synchronisation with the device unless configured, and knows no thresholds. A step
costs tens of microseconds. A crash loses the records of the last two seconds, but none from
before the newest `write_so_far`.
"""

from __future__ import annotations

import logging
import math
import resource
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.timing.device_clock import CudaClock, DeviceStep
from pipeline.timing.flops import mfu
from pipeline.timing.thread_clock import core_wait_so_far_s
from pipeline.timing.whole_records import append_whole, replace_record
from slurm_jobs.formats.records.activity import begin_steps, end_steps
from slurm_jobs.formats.records.heartbeat import beat
from slurm_jobs.formats.records.heartbeat import end_step as count_step
from slurm_jobs.formats.timings.manifest_losses import (
    ManifestLoss,
    manifest_values,
    recorded_manifests,
)
from slurm_jobs.formats.timings.step_records import (
    DEVICE_FIELDS,
    NOT_TRAINING,
    STEP_PARTS,
    STEP_PHASES,
    pack_step,
    steps_header,
    steps_path,
)

if TYPE_CHECKING:
    from typing_extensions import Self


log = logging.getLogger(__name__)

FLUSH_INTERVAL_S = 2.0
_NO_DEVICE_TIMES = dict.fromkeys(DEVICE_FIELDS, math.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCounts:
    """Work of one rank in one step."""

    epoch: int
    num_microbatches: int
    num_samples: int
    num_tokens: int
    """Without padding, image tokens included."""
    num_padding_tokens: int
    num_supervised_tokens: int
    num_images: int
    num_image_tokens: int
    model_flops: float = math.nan
    """Operations that the step needs on this rank, see `pipeline.timing.flops`; NaN if not
    counted."""
    loader_s: float = math.nan
    """For the loader's threads, like the next three; see `LOADER_FIELDS`."""
    loader_cpu_s: float = math.nan
    loader_core_wait_s: float = math.nan
    loader_read_blocked_s: float = math.nan


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOutcome:
    """Outcome of one step, the same on every rank."""

    loss: float
    """Nats per supervised token."""
    learning_rate: float
    grad_norm: float = math.nan
    """Before clipping."""
    by_manifest: Sequence[ManifestLoss] = ()
    """Of each recorded manifest; empty if the step's data set was not mixed."""


def _fields(values: StepCounts | StepOutcome) -> dict[str, Any]:
    """Return the fields like `asdict`, which copies, in a tenth of its time."""
    return {name: getattr(values, name) for name in values.__slots__}


def read_process_memory() -> tuple[float, int]:
    """Return the peak of resident memory in bytes, and no allocator retries."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0, 0  # Linux counts KiB


class _OpenStep:
    """Times of the step that runs: each moment since its start belongs to one phase."""

    def __init__(self, step: int, closing_previous_ns: int, clock: CudaClock | None) -> None:
        """Start `closing_previous_ns` ago, at the end of the previous step.

        That time, and the time for starting the clocks here, is `other_s` of this step.
        """
        now_unix_s, now_ns = time.time(), time.perf_counter_ns()
        self.step = step
        self._start_unix_s = now_unix_s - closing_previous_ns / 1e9
        self._start_ns = now_ns - closing_previous_ns
        self._parts_s = dict.fromkeys(STEP_PARTS, math.nan)
        self.on_device = None if clock is None else DeviceStep(clock)
        self._core_wait_from_s = core_wait_so_far_s()
        self.last_lap_ns = time.perf_counter_ns()
        self._phases_ns = dict.fromkeys(STEP_PHASES, 0)
        self._phases_ns["other_s"] = self.last_lap_ns - self._start_ns

    def lap(self, phase: str, part: str | None) -> None:
        if self.on_device is not None:
            self.on_device.lap(phase)
        now_ns = time.perf_counter_ns()
        self._phases_ns[phase] += now_ns - self.last_lap_ns
        self.last_lap_ns = now_ns
        if part is not None:
            self._parts_s[part] = self.seconds_so_far(STEP_PARTS[part])

    def set_apart(self, phase: str, spent_ns: int) -> None:
        self._phases_ns[phase] += spent_ns
        self.last_lap_ns += spent_ns  # so that the open lap, which began there, is shorter by it

    def seconds_so_far(self, phase: str) -> float:
        return self._phases_ns[phase] / 1e9

    def times(self) -> dict[str, float | int]:
        """Return the fields of its record that are times on the host, up to the last lap."""
        return {
            "step": self.step,
            "start_unix_s": self._start_unix_s,
            **{phase: phase_ns / 1e9 for phase, phase_ns in self._phases_ns.items()},
            "step_s": (self.last_lap_ns - self._start_ns) / 1e9,
            **self._parts_s,
            "core_wait_s": core_wait_so_far_s() - self._core_wait_from_s,
        }


@dataclass(kw_only=True, slots=True)
class _ClosedStep:
    """Step that has ended, whose record waits for values that are known later."""

    values: dict[str, float | int]
    on_device: DeviceStep | None
    outcome: StepOutcome | None

    def is_known(self) -> bool:
        """Check whether its outcome and its device times are known; does not wait."""
        has_passed = self.on_device is None or self.on_device.has_passed()
        return self.outcome is not None and has_passed


class StepRecorder:
    """Splits a step's time into phases that add up.

    Call `start_step` before the loader, `lap(phase)` after each piece of work, and `end_step`
    last. A phase may have several laps; time without a lap is `other_s`. With a device clock
    each lap records an event in the device's queue, and a step's record waits until the device
    has passed its last. A step that ends without an outcome waits for `add_outcome`.
    """

    def __init__(
        self,
        timing_dir: Path,
        rank: int,
        metadata: Mapping[str, Any],
        *,
        read_memory: Callable[[], tuple[float, int]] = read_process_memory,
        device_clock: CudaClock | None = None,
        synchronize: Callable[[], None] | None = None,
        peak_flops_per_s: float | None = None,
    ) -> None:
        """Open the file; `synchronize` is called before each lap: see `timing: sync`."""
        self._stream = steps_path(timing_dir, rank).open("xb", buffering=0)
        append_whole(self._stream, steps_header({"rank": rank, **metadata}))
        self._num_manifests = len(recorded_manifests(metadata))
        self._read_memory = read_memory
        self._clock = device_clock
        self._synchronize = synchronize
        self._peak_flops_per_s = peak_flops_per_s
        self._waiting: deque[_ClosedStep] = deque()
        self._pending: list[bytes] = []
        self._last_flush_ns = time.perf_counter_ns()
        self._open = _OpenStep(0, 0, None)
        self._closing_previous_ns = 0  # belongs to the step that starts next
        self._written_at: int | None = None  # offset of the open step's record in the file

    def start_step(self, step: int) -> None:
        """Start the step after `step` completed ones.

        The time for closing the previous step, after its record was made, is `other_s` of this
        one. So steps follow each other without a gap, even if closing waits for a file system
        or a core.
        """
        begin_steps()  # writes files at the first step, so it comes before the clocks are read
        self._open = _OpenStep(step, self._closing_previous_ns, self._clock)
        self._closing_previous_ns = 0

    @property
    def step(self) -> int:
        """Step that `start_step` started last."""
        return self._open.step

    def lap(self, phase: str, part: str | None = None) -> None:
        """Assign the time since the last lap (or the start of the step) to `phase`.

        With `part`, a key of `STEP_PARTS`, the time of its phase so far in this step is also
        stored under that name.
        """
        if self._synchronize is not None:
            self._synchronize()  # SYNC: configured by `timing: sync`
        self._open.lap(phase, part)
        beat()

    def set_apart(self, phase: str, spent_ns: int) -> None:
        """Assign `spent_ns` of the open lap to `phase`; the lap's own phase gets the rest.

        May be called by another thread while this one waits for it, as in a backward pass.
        """
        self._open.set_apart(phase, spent_ns)

    def seconds_so_far(self, phase: str) -> float:
        """Return the time of a phase in the open step's laps."""
        return self._open.seconds_so_far(phase)

    def end_step(self, counts: StepCounts, outcome: StepOutcome | None = None) -> None:
        """Close the step's record; `add_outcome` adds the outcome if it is not known yet.

        Writes to the file if the last write is long ago, or if `write_so_far` wrote a record that
        waits for its replacement.
        """
        values = self._values(counts)
        # An evaluation has its own stall limit, which must not apply to later steps.
        count_step(values["step_s"] - sum(values[name] for name in NOT_TRAINING))
        self._waiting.append(
            _ClosedStep(values=values, on_device=self._open.on_device, outcome=outcome)
        )
        self._pack_waiting()
        is_late = self._open.last_lap_ns - self._last_flush_ns > FLUSH_INTERVAL_S * 1e9
        if is_late or self._written_at is not None:
            self.flush()
        self._closing_previous_ns = time.perf_counter_ns() - self._open.last_lap_ns

    def add_outcome(self, outcome: StepOutcome) -> None:
        """Add the outcome of the last step, which ended without one."""
        assert self._waiting[-1].outcome is None
        self._waiting[-1].outcome = outcome

    def write_so_far(self, counts: StepCounts, outcome: StepOutcome) -> None:
        """Write pending records and the open step as it is; its final record replaces it later.

        Called before a checkpoint that includes this step, so that a kill after the checkpoint
        cannot leave fewer steps in the records.
        """
        self._pack_waiting(must_pack_all=True)
        self.flush()
        start = self._stream.tell()
        append_whole(self._stream, self._pack(self._values(counts), outcome))
        self._written_at = start

    def _values(self, counts: StepCounts) -> dict[str, float | int]:
        """Return the step so far, without its outcome; time without a lap is `other_s`."""
        self.lap("other_s")
        memory_peak_bytes, num_allocator_retries = self._read_memory()
        times = self._open.times()
        trained_s = times["step_s"] - sum(times[phase] for phase in NOT_TRAINING)
        share = mfu(counts.model_flops, trained_s, self._peak_flops_per_s)
        return {
            **_fields(counts),
            **times,
            **_NO_DEVICE_TIMES,
            "mfu": math.nan if share is None else share,
            "memory_peak_bytes": memory_peak_bytes,
            "num_allocator_retries": num_allocator_retries,
        }

    def _pack_waiting(self, *, must_pack_all: bool = False) -> None:
        """Make the waiting steps pending records, in order, until one lacks a value.

        With `must_pack_all` none stays, and device times that are not known yet are left out.
        """
        while self._waiting and (must_pack_all or self._waiting[0].is_known()):
            closed = self._waiting.popleft()
            values, on_device = closed.values, closed.on_device
            if on_device is not None and on_device.has_passed():
                values = {**values, **on_device.read()}
            self._pending.append(self._pack(values, closed.outcome))

    def _pack(self, values: Mapping[str, float | int], outcome: StepOutcome | None) -> bytes:
        assert outcome is not None
        losses = manifest_values(outcome.by_manifest, self._num_manifests)
        return pack_step(
            {**values, **_fields(outcome), **losses}, num_manifests=self._num_manifests
        )

    def flush(self) -> None:
        """Write the pending records: first the one that `write_so_far` wrote, in its place.

        Raises:
            OSError: the file system failed; what is not written stays pending.
        """
        if self._pending and self._written_at is not None:
            # Its record is the first, because `write_so_far` wrote all before it. It is replaced
            # apart from the others: a full disk refuses only what makes the file longer, and must
            # not take the record that a checkpoint relies on.
            replace_record(self._stream, self._written_at, self._pending[0])
            self._written_at = None
            del self._pending[0]
        if self._pending:
            append_whole(self._stream, b"".join(self._pending))
            self._pending.clear()
        self._last_flush_ns = time.perf_counter_ns()

    def close(self) -> None:
        """Write pending records, and close the file; waits for the device's last steps."""
        end_steps()
        with self._stream:
            on_device = self._waiting[-1].on_device if self._waiting else None
            if on_device is not None:
                on_device.wait()
            self._pack_waiting()
            self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self.close()
            return
        try:
            with self._stream:
                for step in self._waiting:
                    if step.outcome is not None:
                        # without device times: the device may be what failed
                        self._pending.append(self._pack(step.values, step.outcome))
                self._waiting.clear()
                self.flush()
        except OSError as failure:
            log.warning("step records of this rank are lost: %s", failure)  # `error` comes first
