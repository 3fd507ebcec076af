"""PyTorch's profiler over some steps: a Chrome trace, and a table of operators.

The profiler exists only during these steps, and the one before them in which it warms up. Its
errors are logged, and do not fail training.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from pipeline.timing.communication import ProfiledWork, find_communication
from pipeline.timing.span_log import SpanLog
from slurm_jobs.base.files import write_json_atomic, write_text_atomic
from slurm_jobs.formats.configs.training_parts import ProfileConfig
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.formats.timings.profiler_files import (
    OPERATORS_FORMAT_NAME,
    Operator,
    OperatorTable,
    operators_path,
    operators_text_path,
    trace_path,
)
from slurm_jobs.formats.timings.step_records import PROFILE_WRITE_SPAN

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

_US = 1e-6


class Profiling:
    """Called at the start of each step, it records the steps of the config.

    It is a context manager; if steps are still missing at its end, those so far are written.
    """

    def __init__(
        self,
        config: ProfileConfig,
        timing_dir: Path,
        rank: int,
        spans: SpanLog,
        *,
        has_device: bool,
    ) -> None:
        """Record this rank into `timing_dir`; `has_device`: kernels of a GPU, too."""
        is_asked = config.steps is not None and rank in config.ranks
        self._first, self._last = config.steps if is_asked and config.steps else (0, -1)
        self._config, self._timing_dir, self._rank = config, timing_dir, rank
        self._has_device, self._spans = has_device, spans
        self._profiler: profile | None = None
        self._range: Any = None
        self._begun_s: float | None = None
        """Start of the first recorded step."""
        self._begun_step = self._step = 0

    def watch(self, steps: Iterable[int]) -> Iterator[int]:
        """Yield the steps one by one; calls `on_step` before each."""
        for step in steps:
            self.on_step(step)
            yield step

    def on_step(self, step: int) -> None:
        """Handle the start of step `step`, counted from 0; the previous one has ended."""
        if self._profiler is None and not self._first - 1 <= step <= self._last:
            return
        try:
            self._turn_to(step)
        except Exception:  # training continues without its profile
            log.exception("the profile is dropped after an error; training continues")
            self._give_up()

    def _turn_to(self, step: int) -> None:
        self._leave_range()
        if step > self._last:
            self._write(step)
            return
        self._step = step
        if self._profiler is None:
            with self._spans.span("profile_prepare"):
                activities = [ProfilerActivity.CPU]
                if self._has_device:
                    activities.append(ProfilerActivity.CUDA)
                self._profiler = profile(
                    activities=activities,
                    profile_memory=self._config.memory,
                    record_shapes=self._config.memory,
                    with_stack=self._config.stacks,
                    acc_events=True,  # there is one cycle; without it torch warns of further ones
                )
                self._profiler.prepare_trace()
        if step < self._first:
            return
        if self._begun_s is None:
            self._profiler.start_trace()
            self._begun_s, self._begun_step = time.perf_counter(), step
        self._range = record_function(f"step {step}")
        self._range.__enter__()

    def _leave_range(self) -> None:
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None

    def _write(self, end_step: int) -> None:
        """End the recording before step `end_step`; a span, because the other ranks wait for it."""
        profiler, self._profiler = self._profiler, None
        begun_s, self._begun_s = self._begun_s, None
        self._last = -1  # only once
        assert profiler is not None
        if begun_s is None:  # it was only warming up
            profiler.start_trace()
            profiler.stop_trace()
            return
        wall_s = time.perf_counter() - begun_s
        steps = range(self._begun_step, end_step)
        with self._spans.span(PROFILE_WRITE_SPAN, first_step=steps[0], num_steps=len(steps)):
            # SYNC: the profiler waits for the device, to get its last kernels.
            profiler.stop_trace()
            trace = self._write_files(profiler, steps, wall_s)
        log.info("steps %d to %d are profiled: %s", steps[0], steps[-1], trace)

    def _write_files(self, profiler: profile, steps: range, wall_s: float) -> Path:
        folder, rank = self._timing_dir, self._rank
        trace = trace_path(folder, rank)
        part = trace.with_name(f".{trace.name}")  # the suffix makes it compress
        try:
            profiler.export_chrome_trace(str(part))
            part.replace(trace)
        finally:
            part.unlink(missing_ok=True)
        # all but the ranges that a device's timeline copies from the host's
        events = [
            e for e in profiler.events() or () if not (_is_kernel(e) and e.is_user_annotation)
        ]
        pieces = (
            ProfiledWork(
                name=event.name,
                start_s=event.time_range.start * _US,
                end_s=event.time_range.end * _US,
                is_kernel=_is_kernel(event),
            )
            for event in events
        )
        communication = find_communication(pieces, has_device=self._has_device)
        averages = profiler.key_averages()
        table = OperatorTable(
            first_step=steps[0],
            num_steps=len(steps),
            wall_s=wall_s,
            operators=operators_of(averages, with_memory=self._config.memory),
            communication_s=communication.busy_s,
            exposed_communication_s=communication.exposed_s,
        )
        write_json_atomic(
            operators_path(folder, rank), {"format": OPERATORS_FORMAT_NAME, **asdict(table)}
        )
        device = "device" if self._has_device else "cpu"
        text = averages.table(
            sort_by=f"self_{device}_time_total",
            row_limit=100,
            max_name_column_width=80,
        )
        write_text_atomic(operators_text_path(folder, rank), text)
        return trace

    def _give_up(self) -> None:
        self._profiler = self._range = None
        self._last = -1

    def close(self) -> None:
        """Write the recording, if that is still to be done; the last step has ended."""
        if self._profiler is None:
            return
        try:
            self._leave_range()
            self._write(self._step + 1)
        except Exception:  # as in `on_step`
            log.exception("the profile is lost")
            self._give_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def make_profiling(
    config: ProfileConfig, context: TaskContext, spans: SpanLog, device: torch.device
) -> Profiling:
    """Return the profiling of this rank on `device`; does nothing unless configured."""
    has_device = device.type == "cuda"
    return Profiling(config, context.timing_dir, context.rank, spans, has_device=has_device)


def operators_of(averages: Sequence[Any], *, with_memory: bool) -> list[Operator]:
    """Return the rows of `key_averages()`, without ranges that are not operators."""
    # Our ranges of whole steps: on a device the profiler marks them as annotations.
    rows = [r for r in averages if not r.is_user_annotation and not r.key.startswith("step ")]
    cpu_us = sum(row.self_cpu_time_total for row in rows)
    device_us = sum(row.self_device_time_total for row in rows if _is_kernel(row))
    operators = [
        Operator(
            name=row.key,
            kind="kernel" if _is_kernel(row) else "operator",
            num_calls=row.count,
            self_cpu_s=row.self_cpu_time_total * _US,
            cpu_s=row.cpu_time_total * _US,
            self_device_s=row.self_device_time_total * _US,
            device_s=row.device_time_total * _US,
            cpu_share=row.self_cpu_time_total / cpu_us if cpu_us else 0.0,
            device_share=row.self_device_time_total / device_us if device_us else 0.0,
            self_cpu_bytes=row.self_cpu_memory_usage if with_memory else None,
            self_device_bytes=row.self_device_memory_usage if with_memory else None,
        )
        for row in rows
    ]
    return sorted(operators, key=lambda row: (row.self_device_s, row.self_cpu_s), reverse=True)


def _is_kernel(row: Any) -> bool:
    return bool(row.device_type != DeviceType.CPU)
