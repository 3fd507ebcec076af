"""What forward and backward take of a device's memory at their peak, measured; and what it has.

Of a GPU PyTorch's allocator knows. Of a CPU nobody does, but PyTorch's profiler is told of each
piece that its allocator hands out or takes back, those of kernels and of FSDP included, which no
look at tensors would find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch.autograd.profiler import profile

from pipeline.training.host_memory import job_memory_bytes, resident_bytes

_MEMORY_EVENT = "[memory]"


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
    """Bytes that a rank may fill: of its GPU, or an equal part of the job's memory on this node.

    Raises:
        OSError: nothing says how much memory the node has.
    """
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[1])
    return job_memory_bytes() / num_local_ranks


def read_resident(device: torch.device) -> float:
    """Bytes that are taken now, by whomever on a GPU (its context, NCCL's buffers), else by us.

    What PyTorch keeps for later does not count: it is given back first.
    """
    if device.type != "cuda":
        return float(resident_bytes())
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(total - free - kept)


def measure_growth(work: Callable[[], object], device: torch.device) -> float:
    """The most bytes that tensors take while `work` runs, beyond those that were there before.

    Raises:
        torch.OutOfMemoryError: they do not fit.
    """
    if device.type != "cuda":
        with profile(profile_memory=True, use_kineto=True) as found:
            work()
        return _highest(_changes(found))
    torch.cuda.synchronize(device)  # SYNC: what came before is no part of the work
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)  # SYNC: its end is
    return float(torch.cuda.max_memory_allocated(device) - before)


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


def _highest(changes: Iterable[int]) -> float:
    return float(max(accumulate(changes, initial=0)))


def extrapolate(points: list[tuple[int, float]], num_rows: int) -> float:
    """The peak of a microbatch of more rows than any before, in bytes: on the line of the last two.

    Samples of more rows are at most as heavy as those rows, so memory grows with them linearly at
    most, what is there once (gathered weights, gradients) aside.

    Args:
        points: At least two, of rows and peak in bytes, rising.
        num_rows: Of the microbatch.
    """
    (rows, peak), (last_rows, last_peak) = points[-2:]
    slope = max(0.0, (last_peak - peak) / (last_rows - rows))
    return last_peak + slope * (num_rows - last_rows)
