"""Bandwidth and latency between nodes, over gloo and, with GPUs, NCCL.

The nodes form a ring; each exchanges data with its two neighbours, in one exchange at a time. A
node's result is the better of its two, so that a good node next to a bad one is not blamed.
With two nodes there is one exchange; if it is slow, either may be the cause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from pipeline.nodes.measures.measurement import Measurement, median, merged, not_measured
from pipeline.train.ranks.process_group import Ranks, join_ranks, leave_ranks
from slurm_jobs.formats.records.task_context import TaskContext

JOIN_MIN = 3.0
"""Time that a node waits for the slowest: earlier measurements are bounded, imports are not."""
_TRIAL_BYTES = 2**20
_MOST_BYTES = 64 * 2**20
_TALK_S = 0.3
"""Approximate time of one message."""
_NUM_MESSAGES = 5
_NUM_PINGS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """Channel of an exchange."""

    group: dist.ProcessGroup
    device: torch.device


def measure_network(context: TaskContext, keep: Callable[[Measurement], None]) -> Measurement:
    """Exchange data with the neighbours; every rank of the job must call it.

    Args:
        context: With the address of rank 0.
        keep: Called with the gloo results before NCCL, which ends the process if it hangs.
    """
    if context.num_ranks == 1:
        reason = "one node: the network takes two (on Slurm: --nodes 2)"
        return Measurement(reasons={"network": reason, "nccl": reason})
    try:
        ranks = join_ranks(context, device_type="cpu", timeout_min=JOIN_MIN)
        try:
            names = [""] * ranks.num_ranks
            dist.all_gather_object(names, context.node_name, group=ranks.host_group)
            host = _Line(group=ranks.host_group, device=torch.device("cpu"))
            measured = _summed_up("network", _ring(ranks, host, names))
            has_gpu = torch.cuda.is_available() and torch.cuda.device_count() > 0
            if ranks.sums([float(has_gpu)])[0] < ranks.num_ranks:
                reason = "not every node of the job has a GPU that torch sees"
                return merged(measured, not_measured("nccl", reason))
            keep(measured)
            try:
                torch.cuda.set_device(0)
                group = dist.new_group(backend="nccl")
                assert isinstance(group, dist.ProcessGroup)
                cards = _Line(group=group, device=torch.device("cuda", 0))
                return merged(measured, _summed_up("nccl", _ring(ranks, cards, names)))
            except (RuntimeError, ValueError) as error:
                return merged(measured, not_measured("nccl", f"NCCL: {_first_line(error)}"))
        finally:
            leave_ranks()
    except (RuntimeError, OSError, ValueError) as error:  # DistError and its subclasses
        reason = f"the nodes could not talk to each other: {_first_line(error)}"
        return Measurement(reasons={"network": reason, "nccl": reason})


def rounds(num_ranks: int) -> list[list[tuple[int, int]]]:
    """Return the exchanges of a ring: no rank has two in a round; one round for two ranks."""
    if num_ranks == 2:
        return [[(0, 1)]]
    ring = [(rank, (rank + 1) % num_ranks) for rank in range(num_ranks)]
    even = num_ranks - num_ranks % 2
    return [r for r in (ring[0:even:2], ring[1:even:2], ring[even:]) if r]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _summed_up(group: str, talks: list[dict[str, Any]]) -> Measurement:
    numbers = {
        f"{group}_bytes_per_s": max(talk["bytes_per_s"] for talk in talks),
        f"{group}_latency_s": min(talk["latency_s"] for talk in talks),
    }
    return Measurement(numbers=numbers, details={group: talks})


def _ring(ranks: Ranks, line: _Line, names: Sequence[str]) -> list[dict[str, Any]]:
    """Run this rank's exchanges."""
    talks = []
    for pairs in rounds(ranks.num_ranks):
        for first, second in pairs:
            if ranks.rank in (first, second):
                other = second if ranks.rank == first else first
                # The slower direction counts; both ranks get the same numbers.
                begins = ranks.rank == first
                there = _measure(line, other) if begins else _answer(line, other)
                back = _answer(line, other) if begins else _measure(line, other)
                talk = {
                    "bytes_per_s": min(there["bytes_per_s"], back["bytes_per_s"]),
                    "latency_s": max(there["latency_s"], back["latency_s"]),
                }
                talks.append({"with": names[other], **talk})
        ranks.barrier()
    return talks


def _measure(line: _Line, other: int) -> dict[str, float]:
    """Send, and time until all has arrived; `_answer` is the other end."""
    pings = [_sent(line, other, torch.zeros(1, device=line.device)) for _ in range(_NUM_PINGS)]
    trial = torch.zeros(_TRIAL_BYTES, dtype=torch.uint8, device=line.device)
    trial_s = min(_sent(line, other, trial) for _ in range(3))
    size = int(min(_MOST_BYTES, max(_TRIAL_BYTES, _TRIAL_BYTES * _TALK_S / trial_s)))
    _sent(line, other, torch.tensor([size], dtype=torch.int64, device=line.device))
    message = torch.zeros(size, dtype=torch.uint8, device=line.device)
    seconds = median([_sent(line, other, message) for _ in range(_NUM_MESSAGES)])
    # A message and its answer are two trips; for a large one the answer takes no time.
    results = {"bytes_per_s": size / seconds, "latency_s": median(pings[1:]) / 2}
    rates = torch.tensor(list(results.values()), dtype=torch.float64, device=line.device)
    _sent(line, other, rates)
    return results


def _answer(line: _Line, other: int) -> dict[str, float]:
    for _ in range(_NUM_PINGS):
        _received(line, other, torch.zeros(1, device=line.device))
    for _ in range(3):
        trial = torch.zeros(_TRIAL_BYTES, dtype=torch.uint8, device=line.device)
        _received(line, other, trial)
    size = torch.zeros(1, dtype=torch.int64, device=line.device)
    _received(line, other, size)
    message = torch.zeros(int(size.item()), dtype=torch.uint8, device=line.device)
    for _ in range(_NUM_MESSAGES):
        _received(line, other, message)
    rates = torch.zeros(2, dtype=torch.float64, device=line.device)
    _received(line, other, rates)
    bytes_per_s, latency_s = rates.tolist()
    return {"bytes_per_s": bytes_per_s, "latency_s": latency_s}


def _sent(line: _Line, other: int, tensor: torch.Tensor) -> float:
    """Return seconds until the other side confirms arrival."""
    reply = torch.zeros(1, device=line.device)
    start_s = time.perf_counter()
    dist.send(tensor, other, group=line.group)
    dist.recv(reply, other, group=line.group)
    if line.device.type == "cuda":
        torch.cuda.synchronize(line.device)
    return time.perf_counter() - start_s


def _received(line: _Line, other: int, tensor: torch.Tensor) -> None:
    dist.recv(tensor, other, group=line.group)
    dist.send(torch.zeros(1, device=line.device), other, group=line.group)
    if line.device.type == "cuda":
        torch.cuda.synchronize(line.device)
