"""Process group of all ranks, and small agreements between them on the host."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from pipeline.train.ranks.flight_recorder import write_flights_on_request
from pipeline.train.ranks.patient_wait import arrive, tell_node, wait_for_all
from slurm_jobs.formats.records.task_context import TaskContext

_WORKERS_END_S = 0.25
"""Pause before the end of the interpreter. gloo's worker threads release a collective's
tensors, which takes the interpreter's lock, some time after the collective has returned. If one
does so at the interpreter's end, it aborts the process
(github.com/pytorch/pytorch/pull/179291): without a pause a third of all two-rank groups on a
busy two-core machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """This process's rank, and its communication with the others."""

    rank: int
    num_ranks: int
    host_group: dist.ProcessGroup
    """gloo, whatever the device: an agreement must not wait for the device's queue."""
    store: dist.Store
    """Store of this attempt, on rank 0."""

    def sums(self, values: Sequence[float]) -> list[float]:
        """Return each value summed over all ranks; a collective of the host, in float64.

        A single rank skips the collective: gloo would use another thread, which on a busy node
        may wait long for a core and the interpreter.
        """
        if self.num_ranks == 1:
            return [float(value) for value in values]
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, group=self.host_group)
        return tensor.tolist()

    def sum_on_device(self, tensor: torch.Tensor) -> None:
        """Sum `tensor` over all ranks, in place; on a GPU this is queued, no SYNC."""
        if self.num_ranks > 1:
            dist.all_reduce(tensor)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.sums([0.0])

    def meet(self, what: str, *, speaks: bool) -> None:
        """Wait until all ranks have called this, without a timeout; see `patient_wait`."""
        arrive(self.store, what, rank=self.rank, num_ranks=self.num_ranks)
        wait_for_all(self.store, what, num_ranks=self.num_ranks, speaks=speaks)

    def from_main(self, value: Any) -> Any:
        """Return rank 0's `value` on every rank."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.host_group)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks by rank, on rank 0; an empty list on the others."""
        box = [None] * self.num_ranks if self.rank == 0 else None
        dist.gather_object(value, box, dst=0, group=self.host_group)
        return box or []


def join_ranks(context: TaskContext, *, device_type: str, timeout_min: float) -> Ranks:
    """Start the process group of this attempt; every rank must call it."""
    timeout = dt.timedelta(minutes=timeout_min)
    address = f"tcp://{context.main_addr}:{context.main_port}"
    shared, _, _ = next(rendezvous(address, context.rank, context.num_ranks, timeout=timeout))
    shared.set_timeout(timeout)
    store = dist.PrefixStore("slurm_jobs", shared)
    tell_node(store, context.rank, context.node_name)
    dist.init_process_group(
        # With weights offloaded to the host, FSDP has CPU tensors on a GPU mesh.
        backend="cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo",
        store=dist.PrefixStore("default_pg", shared),
        rank=context.rank,
        world_size=context.num_ranks,
        timeout=timeout,
    )
    write_flights_on_request(context.task_dir, context.rank, timeout_s=timeout.total_seconds())
    default = cast("dist.ProcessGroup", dist.group.WORLD)  # None only before this
    host = dist.new_group(backend="gloo", timeout=timeout) if device_type == "cuda" else default
    return Ranks(rank=context.rank, num_ranks=context.num_ranks, host_group=host, store=store)


def new_host_group(*, timeout_min: float) -> dist.ProcessGroup:
    """Return another gloo group of all ranks, for a separate thread; a collective."""
    group = dist.new_group(backend="gloo", timeout=dt.timedelta(minutes=timeout_min))
    assert isinstance(group, dist.ProcessGroup)
    return group


def leave_ranks() -> None:
    """End the process group, if there is one; the process may end after it."""
    if dist.is_initialized():
        dist.destroy_process_group()
        time.sleep(_WORKERS_END_S)
