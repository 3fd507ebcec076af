"""Peak device memory of forward and backward, measured; and the device's capacity.

For a GPU PyTorch's allocator reports it. For a CPU PyTorch's profiler reports each allocation
and release, including those of kernels and of FSDP, which inspecting tensors would miss.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch.autograd.profiler import profile

from pipeline.train.memory.host_memory import read_host_memory, resident_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryUse:
    """Memory of one rank's device."""

    peak_bytes: float
    capacity_bytes: float

    @property
    def share(self) -> float:
        """Share of the capacity; above 1 it does not fit."""
        return self.peak_bytes / self.capacity_bytes


def read_capacity(device: torch.device, num_local_ranks: int) -> float:
    """Return bytes a rank may use: its GPU's, or an equal part of the job's memory on this node."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[1])
    return read_host_memory(os.environ).limit_bytes / num_local_ranks


def read_resident(device: torch.device) -> float:
    """Return bytes in use now: by all on a GPU (context, NCCL's buffers), else by this process.

    PyTorch's cache, and unreachable objects, are freed first.
    """
    gc.collect()
    if device.type != "cuda":
        return float(resident_bytes())
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    cached_bytes = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(total - free - cached_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """Bytes that tensors take beyond those that existed before."""

    peak_bytes: float
    left_bytes: float
    """At the end."""

    def then(self, after: Growth) -> Growth:
        """Combine two growths, one after the other."""
        return Growth(
            peak_bytes=max(self.peak_bytes, self.left_bytes + after.peak_bytes),
            left_bytes=self.left_bytes + after.left_bytes,
        )


def measure_growth(work: Callable[[], object], device: torch.device) -> Growth:
    """Measure the memory of tensors while `work` runs.

    On a CPU, releases of earlier memory during `work` are not detected: the result is then too
    high, never too low.

    Raises:
        torch.OutOfMemoryError: they do not fit into a GPU.
    """
    if device.type != "cuda":
        gc.collect()  # garbage of an earlier measurement would count as released by `work`
        # Without it, Kineto writes two lines into the log at each use; it is read once.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        with profile(profile_memory=True) as profiled:
            work()
        assert profiled.kineto_results is not None
        events = [e for e in profiled.kineto_results.events() if e.name() == "[memory]"]
        changes = (event.nbytes() for event in sorted(events, key=lambda e: e.start_ns()))
        sums = list(accumulate(changes, initial=0))
        return Growth(peak_bytes=max(sums), left_bytes=sums[-1])
    torch.cuda.synchronize(device)  # SYNC: earlier work is not part of it
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)  # SYNC: wait for its end
    return Growth(
        peak_bytes=torch.cuda.max_memory_allocated(device) - before,
        left_bytes=torch.cuda.memory_allocated(device) - before,
    )


def forget_peaks(device: torch.device) -> None:
    """Reset the peaks, so that later readings do not include them."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def extrapolate(peaks: Sequence[tuple[int, float]], fixed: float, num_rows: int) -> float:
    """Estimate the peak of a microbatch of more rows than any before, in bytes.

    It is at most the fixed part plus the rest in proportion to the rows: samples are at most as
    heavy together as apart. If the fixed part is underestimated, this is too high, and the line
    through the last two peaks is closer. But a peak is the highest of several, of which another
    may grow faster. So the line's last error counts twice, because the next stretch is twice as
    long.

    `peaks` are rows, ascending, and bytes; at least one. `fixed` bytes are in use whatever the
    rows: weights, gradients, the optimizer.
    """
    rows, peak = peaks[-1]
    most = fixed + (peak - fixed) * num_rows / rows
    if len(peaks) < 3:
        return most

    def on_line(points: Sequence[tuple[int, float]], at: int) -> float:
        (rows, peak), (last_rows, last_peak) = points
        return last_peak + (last_peak - peak) / (last_rows - rows) * (at - last_rows)

    error = abs(on_line(peaks[-3:-1], rows) - peak)
    return min(most, on_line(peaks[-2:], num_rows) + 2 * error)
