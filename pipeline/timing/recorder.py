"""Recorder of steps and spans, and the clocks that time them."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._dynamo.callback import CallbackArgs, CallbackTrigger, callback_handler

from pipeline.timing.flops import mfu
from pipeline.timing.whole_records import append_whole
from slurm_jobs.shared.activity import begin_steps, doing, end_steps
from slurm_jobs.shared.heartbeat import beat, end_step
from slurm_jobs.shared.timings import (
    DEVICE_FIELDS,
    DEVICE_PHASES,
    NOT_TRAINING,
    STEP_PARTS,
    STEP_PHASES,
    pack_step,
    spans_path,
    steps_header,
    steps_path,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class CompileWatch:
    """Observer of what torch compiles inside a `with` block: recorded separately, and logged.

    torch compiles a function at its first call, and again for unforeseen inputs; the backward pass
    at its first run.
    """

    def __init__(
        self, set_apart: Callable[[int], None], *, num_expected: int, is_main: bool
    ) -> None:
        """Prepare to watch.

        `set_apart` takes the nanoseconds of each compilation. More forward passes than
        `num_expected` cause a warning. Only the rank that `is_main` logs.
        """
        self._set_apart = set_apart
        self._num_expected = num_expected
        self._is_main = is_main
        self._began_ns = 0
        self._compiling = contextlib.ExitStack()
        self._num_forward = 0
        self._total_ns = 0

    def _begin(self, _: CallbackArgs) -> None:
        self._compiling.enter_context(doing("compilation"))  # longer than a step's stall limit
        self._began_ns = time.perf_counter_ns()

    def _end(self, args: CallbackArgs) -> None:
        spent_ns = time.perf_counter_ns() - self._began_ns
        self._compiling.close()
        self._total_ns += spent_ns
        self._set_apart(spent_ns)
        is_forward = args.callback_trigger == CallbackTrigger.DYNAMO
        self._num_forward += is_forward
        if not self._is_main:
            return
        log.info(
            "compiled a layer's %s pass in %.1f s, %.1f s in all",
            "forward" if is_forward else "backward", spent_ns / 1e9, self._total_ns / 1e9,
        )  # fmt: skip
        if is_forward and self._num_forward == self._num_expected + 1:
            log.warning(
                "layers have been compiled more than %d times: their inputs change in a way "
                "that needs a new compilation each time. TORCH_LOGS=recompiles in the stage's "
                "`env` shows the reason; if it continues, steps are faster without `compile`",
                self._num_expected,
            )

    def __enter__(self) -> Self:
        callback_handler.register_start_callback(self._begin)
        callback_handler.register_end_callback(self._end)
        return self

    def __exit__(self, *_error: object) -> None:
        callback_handler.remove_start_callback(self._begin)
        callback_handler.remove_end_callback(self._end)


# Device times of a step, from events in the device's queue that are read later.
#
# Recording an event costs the host a few microseconds and no wait. The device passes an event
# when all work queued before it is done, so the time between two events is that of the work
# between them, and of the device's idle time.


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


# Communication without parallel computation, from a profiler's events.
#
# A collective in parallel with computation costs little; one that the ranks wait for costs its
# whole time. Its time includes the wait for the slowest rank, which costs the same.


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Piece of work in the profile."""

    name: str
    start_s: float
    end_s: float
    is_kernel: bool
    """True on the device, False on the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Communication:
    """Communication of one rank, over all recorded steps."""

    busy_s: float
    """Time with at least one running collective."""
    exposed_s: float
    """Time in which additionally nothing was computed, according to the profiler, which slows
    small operators down."""


def find_communication(pieces: Iterable[Piece], *, has_device: bool) -> Communication:
    """Return a GPU's communication from its kernels, a CPU's from gloo's events and operators.

    With `has_device` the model computes on a GPU, and gloo's and operators' events on the host are
    ignored.
    """
    collectives, work = [], []
    for piece in pieces:
        if piece.is_kernel != has_device:
            continue
        if piece.name.startswith(("gloo:", "nccl")):
            collectives.append((piece.start_s, piece.end_s))
        elif has_device or piece.name.startswith("aten::"):
            work.append((piece.start_s, piece.end_s))
    busy_s = _covered_s(collectives)
    exposed_s = _covered_s(collectives + work) - _covered_s(work)
    return Communication(busy_s=busy_s, exposed_s=min(exposed_s, busy_s))  # except for rounding


def _covered_s(intervals: list[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    if not intervals:
        return 0.0
    starts, ends = np.array(sorted(intervals), dtype=np.float64).T
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ends)[:-1]])
    return float(np.maximum(0.0, ends - np.maximum(starts, before)).sum())


# Spans: everything that takes time but is not a step, as JSON lines.


class SpanLog:
    """Appends one line per span to this rank's file; a line is written when its span ends."""

    def __init__(self, timing_dir: Path, rank: int) -> None:
        self._path = spans_path(timing_dir, rank)

    @contextmanager
    def span(self, name: str, **notes: Any) -> Iterator[dict[str, Any]]:
        """Time the block; the block may add to the yielded dict.

        A block that raises is recorded too, with the exception's type as `error`.
        """
        start_unix_s, start_ns = time.time(), time.perf_counter_ns()

        def write() -> None:
            duration_s = (time.perf_counter_ns() - start_ns) / 1e9
            self.add(name, start_unix_s=start_unix_s, duration_s=duration_s, **notes)

        try:
            with doing(name):
                yield notes
        except BaseException as error:
            notes["error"] = type(error).__name__
            try:
                write()
            except OSError as failure:  # the block's error takes precedence
                log.warning("the span %s is not written: %s", name, failure)
            raise
        write()

    def add(self, name: str, *, start_unix_s: float, duration_s: float, **notes: Any) -> None:
        """Write a span that was timed elsewhere.

        Raises:
            OSError: the file system failed; the file is unchanged.
        """
        span = {"name": name, "start_unix_s": start_unix_s, "duration_s": duration_s, **notes}
        with self._path.open("ab", buffering=0) as stream:
            append_whole(stream, json.dumps(span).encode() + b"\n")


# Time of one thread's work: on a core, waiting for a core, or blocked.
#
# Shows why a loader is slow without instrumenting each read: memory-mapped data is read from the
# disk wherever it is first accessed, in a copy or in a decoder.


_SCHEDSTAT = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadTimes:
    """Seconds of one piece of work, or of several together."""

    wall_s: float = math.nan
    """From its start to its end."""
    cpu_s: float = math.nan
    """Computing."""
    core_wait_s: float = math.nan
    """Ready to compute, while other threads had the cores; NaN if the kernel does not account
    for it. The rest is blocked: on storage, or on a lock such as the interpreter's."""

    @property
    def blocked_s(self) -> float:
        """Remaining time; NaN if the other parts are unknown."""
        return self.wall_s - self.cpu_s - self.core_wait_s


NOT_TIMED = ThreadTimes()


def add_up(times: Iterable[ThreadTimes]) -> ThreadTimes:
    """Return the sum of each; NaN if one is unknown."""
    listed = list(times)
    return ThreadTimes(
        wall_s=math.fsum(entry.wall_s for entry in listed),
        cpu_s=math.fsum(entry.cpu_s for entry in listed),
        core_wait_s=math.fsum(entry.core_wait_s for entry in listed),
    )


class ThreadClock:
    """Starts at its creation; `read` it in the same thread. Costs about 20 microseconds."""

    def __init__(self) -> None:
        self._wall_s = time.perf_counter()
        self._cpu_s, self._core_wait_s = time.thread_time(), core_wait_so_far_s()

    def read(self) -> ThreadTimes:
        """Return the times since its creation."""
        # The wall clock is read first and last: a thread that loses its core between two of these
        # lines has not waited for longer than the work has taken.
        cpu_s, core_wait_s = time.thread_time(), core_wait_so_far_s()
        return ThreadTimes(
            wall_s=time.perf_counter() - self._wall_s,
            cpu_s=cpu_s - self._cpu_s,
            core_wait_s=core_wait_s - self._core_wait_s,
        )


def core_wait_so_far_s() -> float:
    """Return this thread's total time waiting for a core (Documentation/scheduler/sched-stats.rst).

    It was ready to compute while others had the cores; NaN without accounting.
    """
    if not _is_accounted():
        return math.nan
    return int(_SCHEDSTAT.read_bytes().split()[1]) * 1e-9


@functools.cache
def _is_accounted() -> bool:
    """Check whether the kernel accounts for these waits, readable by this process."""
    try:
        return len(_SCHEDSTAT.read_bytes().split()) > 1
    except OSError:
        return False


# Recorder of every step: laps of one clock, packed and written rarely.
#
# It adds no synchronisation with the device unless configured, and knows no thresholds. A step
# costs tens of microseconds. A crash loses the records of the last two seconds, but none from
# before the newest `write_so_far`.


log = logging.getLogger(__name__)

FLUSH_INTERVAL_S = 2.0
_NO_DEVICE_TIMES = dict.fromkeys(DEVICE_FIELDS, math.nan)
_NO_PARTS = dict.fromkeys(STEP_PARTS, math.nan)


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


def _fields(values: StepCounts | StepOutcome) -> dict[str, Any]:
    """Return the fields like `asdict`, which copies, in a tenth of its time."""
    return {name: getattr(values, name) for name in values.__slots__}


def read_process_memory() -> tuple[float, int]:
    """Return the peak of resident memory in bytes, and no allocator retries."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0, 0  # Linux counts KiB


@dataclass(kw_only=True, slots=True)
class _Closed:
    """Step that has ended, whose record waits for values that are known later."""

    values: dict[str, float | int]
    on_device: DeviceStep | None
    outcome: StepOutcome | None

    def is_known(self) -> bool:
        """Check whether its outcome and its device times are known; does not wait."""
        has_passed = self.on_device is None or self.on_device.has_passed()
        return self.outcome is not None and has_passed

    def pack(self, times: Mapping[str, float] = MappingProxyType({})) -> bytes:
        assert self.outcome is not None
        return pack_step({**self.values, **_fields(self.outcome), **times})


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
        self._read_memory = read_memory
        self._clock = device_clock
        self._synchronize = synchronize
        self._peak_flops_per_s = peak_flops_per_s
        self._waiting: deque[_Closed] = deque()
        self._pending: list[bytes] = []
        self._last_flush_ns = self._start_ns = self._lap_ns = time.perf_counter_ns()
        self._laps_ns = dict.fromkeys(STEP_PHASES, 0)
        self._parts_s = _NO_PARTS
        self._on_device: DeviceStep | None = None
        self._core_wait_from_s = math.nan
        self._own_ns = 0  # time of closing the previous step, a part of the next
        self._step = 0
        self._start_unix_s = 0.0
        self._written_at: int | None = None  # offset of the open step's record in the file

    def start_step(self, step: int) -> None:
        """Start the step after `step` completed ones.

        The time for closing the previous step, after its record was made, is `other_s` of this
        one. So steps follow each other without a gap, even if closing waits for a file system
        or a core.
        """
        begin_steps()  # writes files at the first step, so it comes before the clocks are read
        own_ns, self._own_ns = self._own_ns, 0
        start_unix_s, now_ns = time.time(), time.perf_counter_ns()
        self._step = step
        self._start_unix_s = start_unix_s - own_ns / 1e9
        self._start_ns = now_ns - own_ns
        self._parts_s = _NO_PARTS
        self._on_device = None if self._clock is None else DeviceStep(self._clock)
        self._core_wait_from_s = core_wait_so_far_s()
        self._lap_ns = time.perf_counter_ns()
        first_ns = self._lap_ns - self._start_ns
        self._laps_ns = {**dict.fromkeys(STEP_PHASES, 0), "other_s": first_ns}

    @property
    def step(self) -> int:
        """Step that `start_step` started last."""
        return self._step

    def lap(self, phase: str, part: str | None = None) -> None:
        """Assign the time since the last lap (or the start of the step) to `phase`.

        With `part`, a key of `STEP_PARTS`, the time of its phase so far in this step is also
        stored under that name.
        """
        if self._synchronize is not None:
            self._synchronize()  # SYNC: configured by `timing: sync`
        if self._on_device is not None:
            self._on_device.lap(phase)
        now_ns = time.perf_counter_ns()
        self._laps_ns[phase] += now_ns - self._lap_ns
        self._lap_ns = now_ns
        beat()
        if part is not None:
            self._parts_s = {**self._parts_s, part: self.seconds_so_far(STEP_PARTS[part])}

    def set_apart(self, phase: str, spent_ns: int) -> None:
        """Assign a part of the open lap to `phase` instead of to the rest of the lap.

        May be called by another thread while this one waits for it, as in a backward pass.
        """
        self._laps_ns[phase] += spent_ns
        self._lap_ns += spent_ns

    def seconds_so_far(self, phase: str) -> float:
        """Return the time of a phase in the open step's laps."""
        return self._laps_ns[phase] / 1e9

    def end_step(self, counts: StepCounts, outcome: StepOutcome | None = None) -> None:
        """Close the step's record; write to the file if the last write is long ago."""
        values = self._values(counts)
        # An evaluation has its own stall limit, which must not apply to later steps.
        end_step(values["step_s"] - sum(values[name] for name in NOT_TRAINING))
        self._waiting.append(_Closed(values=values, on_device=self._on_device, outcome=outcome))
        self._settle()
        is_late = self._lap_ns - self._last_flush_ns > FLUSH_INTERVAL_S * 1e9
        if is_late or self._written_at is not None:
            self.flush()
        self._own_ns = time.perf_counter_ns() - self._lap_ns

    def add_outcome(self, outcome: StepOutcome) -> None:
        """Add the outcome of the last step, which ended without one."""
        assert self._waiting[-1].outcome is None
        self._waiting[-1].outcome = outcome

    def write_so_far(self, counts: StepCounts, outcome: StepOutcome) -> None:
        """Write pending records and the open step as it is; its final record replaces it later.

        Called before a checkpoint that includes this step, so that a kill after the checkpoint
        cannot leave fewer steps in the records.
        """
        self._settle(all_of_them=True)
        self.flush()
        start = self._stream.tell()
        append_whole(self._stream, pack_step({**self._values(counts), **_fields(outcome)}))
        self._written_at = start

    def _values(self, counts: StepCounts) -> dict[str, float | int]:
        """Return the step so far, without its outcome; time without a lap is `other_s`."""
        self.lap("other_s")
        memory_peak_bytes, num_allocator_retries = self._read_memory()
        phases = {name: lap_ns / 1e9 for name, lap_ns in self._laps_ns.items()}
        step_s = (self._lap_ns - self._start_ns) / 1e9
        trained_s = step_s - sum(phases[name] for name in NOT_TRAINING)
        share = mfu(counts.model_flops, trained_s, self._peak_flops_per_s)
        return {
            "step": self._step,
            "start_unix_s": self._start_unix_s,
            **_fields(counts),
            **phases,
            "step_s": step_s,
            **self._parts_s,
            "core_wait_s": core_wait_so_far_s() - self._core_wait_from_s,
            **_NO_DEVICE_TIMES,
            "mfu": math.nan if share is None else share,
            "memory_peak_bytes": memory_peak_bytes,
            "num_allocator_retries": num_allocator_retries,
        }

    def _settle(self, *, all_of_them: bool = False) -> None:
        """Pack the complete steps; or all, without missing device times."""
        while self._waiting and (all_of_them or self._waiting[0].is_known()):
            closed = self._waiting.popleft()
            on_device = closed.on_device
            has_times = on_device is not None and on_device.has_passed()
            self._pending.append(closed.pack(on_device.read() if on_device and has_times else {}))

    def flush(self) -> None:
        """Write the pending records, all or none.

        Raises:
            OSError: the file system failed; they stay pending.
        """
        if self._pending:
            if self._written_at is not None:  # the first pending record replaces that one
                self._stream.seek(self._written_at)
                self._written_at = None
            append_whole(self._stream, b"".join(self._pending))
            self._pending.clear()
        self._last_flush_ns = time.perf_counter_ns()

    def close(self) -> None:
        """Write pending records, and close the file; waits for the device's last steps."""
        end_steps()
        with self._stream:
            if self._waiting and (last := self._waiting[-1].on_device) is not None:
                last.wait()
            self._settle()
            self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self.close()
            return
        try:
            with self._stream:
                # without device times: the device may be what failed
                self._pending += [step.pack() for step in self._waiting if step.outcome is not None]
                self._waiting.clear()
                self.flush()
        except OSError as failure:
            log.warning("step records of this rank are lost: %s", failure)  # `error` comes first
