"""The recorder of every step: laps of one clock, packed and written seldom.

It adds no synchronisation with the device and knows no thresholds. A step
costs about 15 microseconds; a crash loses the records of the last two seconds,
but none from before the newest `write_so_far`.
"""

from __future__ import annotations

import logging
import math
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pipeline.timing.append import append_whole
from slurm_jobs.common.timings import STEP_PHASES, pack_step, steps_header, steps_path

log = logging.getLogger(__name__)

FLUSH_INTERVAL_S = 2.0
_BYTES_PER_RSS_UNIT = 1024  # Linux counts ru_maxrss in KiB


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCounts:
    """What one rank worked on in one step."""

    epoch: int
    num_microbatches: int
    num_samples: int
    num_tokens: int
    """Real ones, image tokens included."""
    num_padding_tokens: int
    num_supervised_tokens: int
    num_images: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOutcome:
    """What came of one step, the same on every rank."""

    loss: float
    """Nats a supervised token."""
    learning_rate: float
    grad_norm: float = math.nan
    """Before clipping."""


def read_process_memory() -> tuple[float, int]:
    """High-water mark of resident memory in bytes, and no allocator retries."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak * _BYTES_PER_RSS_UNIT), 0


class StepRecorder:
    """Splits a step's host time into phases that add up.

    `start_step` before the loader is asked, `lap(phase)` after each piece of
    work, `end_step` last. A phase may have several laps; what no lap covers
    is `other_s`.
    """

    def __init__(
        self,
        timing_dir: Path,
        rank: int,
        metadata: Mapping[str, Any],
        *,
        read_memory: Callable[[], tuple[float, int]] = read_process_memory,
    ) -> None:
        self._stream = steps_path(timing_dir, rank).open("xb", buffering=0)
        append_whole(self._stream, steps_header({"rank": rank, **metadata}))
        self._read_memory = read_memory
        self._pending: list[bytes] = []
        self._last_flush_ns = self._start_ns = self._lap_ns = time.perf_counter_ns()
        self._laps_ns = dict.fromkeys(STEP_PHASES, 0)
        self._step = 0
        self._start_unix_s = 0.0
        self._written_at: int | None = None  # where the open step's record is in the file

    def start_step(self, step: int) -> None:
        """Begin the step before which `step` steps were completed."""
        self._step = step
        self._start_unix_s = time.time()
        self._laps_ns = dict.fromkeys(STEP_PHASES, 0)
        self._start_ns = self._lap_ns = time.perf_counter_ns()

    def lap(self, phase: str) -> None:
        """Give the time since the last lap (or the start of the step) to `phase`."""
        now_ns = time.perf_counter_ns()
        self._laps_ns[phase] += now_ns - self._lap_ns
        self._lap_ns = now_ns

    def end_step(self, counts: StepCounts, outcome: StepOutcome) -> None:
        """Close the step's record; write to the file if the last time is long ago."""
        self._pending.append(self._pack(counts, outcome))
        if self._written_at is not None:
            self._stream.seek(self._written_at)
            self._written_at = None
            self.flush()
        elif self._lap_ns - self._last_flush_ns > FLUSH_INTERVAL_S * 1e9:
            self.flush()

    def write_so_far(self, counts: StepCounts, outcome: StepOutcome) -> None:
        """Write what waits and the open step as it stands; `end_step` puts the whole in its place.

        Called before a checkpoint that has this step in it, so that a kill after the
        checkpoint cannot leave fewer steps in the records.
        """
        self.flush()
        start = self._stream.tell()
        append_whole(self._stream, self._pack(counts, outcome))
        self._written_at = start

    def _pack(self, counts: StepCounts, outcome: StepOutcome) -> bytes:
        """The step up to this moment; what no lap covers goes to `other_s`."""
        self.lap("other_s")
        memory_peak_bytes, num_allocator_retries = self._read_memory()
        phases = {name: lap_ns / 1e9 for name, lap_ns in self._laps_ns.items()}
        return pack_step(
            {
                "step": self._step,
                "start_unix_s": self._start_unix_s,
                **asdict(counts),
                **phases,
                "step_s": (self._lap_ns - self._start_ns) / 1e9,
                **asdict(outcome),
                "memory_peak_bytes": memory_peak_bytes,
                "num_allocator_retries": num_allocator_retries,
            }
        )

    def flush(self) -> None:
        """Write the waiting records, all or none.

        Raises:
            OSError: the file system failed; they still wait.
        """
        if self._pending:
            append_whole(self._stream, b"".join(self._pending))
            self._pending.clear()
        self._last_flush_ns = time.perf_counter_ns()

    def close(self) -> None:
        """Write what waits, and close the file."""
        with self._stream:
            self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except OSError as failure:
            if error is None:
                raise
            log.warning("step records of this rank are lost: %s", failure)  # `error` comes first
