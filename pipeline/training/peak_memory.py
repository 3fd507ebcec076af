"""What forward and backward take of a device's memory at their peak, measured; and what it has.

Of a GPU PyTorch's allocator knows. Of a CPU nobody does, but PyTorch's profiler is told of each
piece that its allocator hands out or takes back, those of kernels and of FSDP included, which no
look at tensors would find.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch.autograd.profiler import profile

from pipeline.training.host_memory import read_host_memory, resident_bytes

_MEMORY_EVENT = "[memory]"
_NO_KINETO_LINES = "6"
"""The profiler's library would write two lines into the log for each time that it is used. It reads
this once, when it is used first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryUse:
    """Of one rank's device."""

    peak_bytes: float
    capacity_bytes: float

    @property
    def share(self) -> float:
        """Of the memory that is there; above 1 it would not fit."""
        return self.peak_bytes / self.capacity_bytes


def read_capacity(device: torch.device, num_local_ranks: int) -> float:
    """Bytes that a rank may fill: of its GPU, or an equal part of the job's memory on this node."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[1])
    return read_host_memory(os.environ).limit_bytes / num_local_ranks


def read_resident(device: torch.device) -> float:
    """Bytes that are taken now, by whomever on a GPU (its context, NCCL's buffers), else by us.

    What PyTorch keeps for later, and what nobody can reach any more, is given back first.
    """
    gc.collect()
    if device.type != "cuda":
        return float(resident_bytes())
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(total - free - kept)


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """Bytes that tensors take beyond those that were there before."""

    peak_bytes: float
    """The most at once."""
    left_bytes: float
    """In the end."""

    def then(self, after: Growth) -> Growth:
        """Of both, one after the other."""
        return Growth(
            peak_bytes=max(self.peak_bytes, self.left_bytes + after.peak_bytes),
            left_bytes=self.left_bytes + after.left_bytes,
        )


def measure_growth(work: Callable[[], object], device: torch.device) -> Growth:
    """What tensors take while `work` runs.

    On a CPU memory from before that is given back meanwhile is not made out: it is too much then,
    never too little.

    Raises:
        torch.OutOfMemoryError: they do not fit into a GPU.
    """
    if device.type != "cuda":
        os.environ.setdefault("KINETO_LOG_LEVEL", _NO_KINETO_LINES)
        with profile(profile_memory=True) as found:
            work()
        return _sum_up(_changes(found))
    torch.cuda.synchronize(device)  # SYNC: what came before is no part of the work
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)  # SYNC: its end is
    return Growth(
        peak_bytes=torch.cuda.max_memory_allocated(device) - before,
        left_bytes=torch.cuda.memory_allocated(device) - before,
    )


def forget_peaks(device: torch.device) -> None:
    """Whoever reads peaks after it sees none of those before."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _changes(found: profile) -> Iterable[int]:
    """Bytes that were handed out, or negative: taken back; in their order."""
    assert found.kineto_results is not None
    events = [e for e in found.kineto_results.events() if e.name() == _MEMORY_EVENT]
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]


def _sum_up(changes: Iterable[int]) -> Growth:
    sums = list(accumulate(changes, initial=0))
    return Growth(peak_bytes=max(sums), left_bytes=sums[-1])


def extrapolate(peaks: Sequence[tuple[int, float]], fixed: float, num_rows: int) -> float:
    """What a microbatch of more rows than any before takes at its peak, in bytes.

    It is no more than what is fixed plus the rest in proportion to the rows: samples are at most as
    heavy together as apart. Where more is fixed than is known that is too much, and the line
    through the last two peaks comes nearer. But a peak is the highest of several, of which another
    may grow faster: so the line's last error counts twice, the next stretch being twice as long.

    Args:
        peaks: Of rows, rising, and bytes; at least one.
        fixed: Bytes that are taken whatever the rows: weights, gradients, the optimizer.
        num_rows: Of the microbatch.
    """
    rows, peak = peaks[-1]
    most = fixed + (peak - fixed) * num_rows / rows
    if len(peaks) < 3:
        return most
    error = abs(_on_line(peaks[-3:-1], rows) - peak)
    return min(most, _on_line(peaks[-2:], num_rows) + 2 * error)


def _on_line(points: Sequence[tuple[int, float]], num_rows: int) -> float:
    (rows, peak), (last_rows, last_peak) = points
    return last_peak + (last_peak - peak) / (last_rows - rows) * (num_rows - last_rows)
