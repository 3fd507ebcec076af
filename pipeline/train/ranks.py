"""Ranks of a training: how they join, exchange values and wait for each other."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

from slurm_jobs.shared.files import write_bytes_atomic
from slurm_jobs.shared.index_ranges import ranges_text
from slurm_jobs.shared.records.heartbeat import is_quiet, stacks_path
from slurm_jobs.shared.records.task_context import TaskContext

# Records of torch's flight recorder, written whenever the rank's Python stacks are.
#
# This is a separate file: frames in `ranks` mean a wait for other ranks
# (`slurm_jobs.worker.hangs`), and the thread that checks for requests is never in one.


FLIGHT_PREFIXES = {"_dump_nccl_trace": "flight-", "_dump_fr_trace": "gloo-flight-"}
"""Files of torch's flight recorder, by its function; the rank's number follows, as
`torchfrtrace` expects. NCCL's watchdog also writes to the first on a timeout."""
_POLL_S = 5.0
"""The file is on a shared folder."""
_QUIET_POLL_S = 1.0
_POLLS_A_TIMEOUT = 20


def write_flights_on_request(task_dir: Path, rank: int, *, timeout_s: float) -> None:
    """Write torch's flight records each time this rank's stacks are written.

    A thread watches the size of the stack file, because the handler that writes it cannot run
    Python. It checks more often if the rank makes no progress: the rank is ended soon after the
    request.
    """
    poll_s = max(_QUIET_POLL_S, min(_POLL_S, timeout_s / _POLLS_A_TIMEOUT))
    stacks = stacks_path(task_dir, rank)
    if not stacks.exists():  # this process is not a rank of the supervisor
        return

    def follow(size: int) -> None:
        while True:
            time.sleep(_QUIET_POLL_S if is_quiet() else poll_s)
            with suppress(OSError):
                if stacks.stat().st_size != size:
                    size = stacks.stat().st_size
                    write_flights(task_dir, rank)

    # The size is read here, so that a request is seen that comes before the thread first runs.
    size = stacks.stat().st_size
    threading.Thread(target=follow, args=(size,), name="flight-recorder", daemon=True).start()


def write_flights(task_dir: Path, rank: int) -> None:
    """Write the last collectives of this rank, pickled, one file per recorder.

    Their stacks are added in a second pass: looking up source lines takes seconds, and the
    process may be ended meanwhile.

    Raises:
        OSError: a file cannot be written.
    """
    for has_stacks in (False, True):
        for name, prefix in FLIGHT_PREFIXES.items():
            dump = getattr(c10d, name, None)  # a build without CUDA has no NCCL
            if dump is not None:
                data = dump(includeStackTraces=has_stacks)
                write_bytes_atomic(task_dir / f"{prefix}{rank}", data)


# Wait for all ranks without a timeout: for work that takes nodes different times.
#
# A collective is given up after `collective_timeout_min`, with an error that names no rank. Here
# ranks record their arrival in the store of the process group, and check it for the others.


log = logging.getLogger(__name__)

FIRST_WORD_S = 60.0
"""Time of waiting after which the log names the missing ranks; the interval then doubles."""
_FIRST_POLL_S = 0.02
_LAST_POLL_S = 1.0  # a thousand ranks send rank 0 a thousand small requests per second


def tell_node(store: dist.Store, rank: int, node_name: str) -> None:
    """Record the node of `rank`; every rank does it before any rank waits."""
    store.set(f"node/{rank}", node_name)


def arrive(store: dist.Store, what: str, *, rank: int, num_ranks: int) -> None:
    """Record that `rank` has done `what`, a name that is used once."""
    store.set(f"{what}/{rank}", "done")
    if store.add(f"{what}/num_done", 1) == num_ranks:
        store.set(f"{what}/all", "done")


def wait_for_all(store: dist.Store, what: str, *, num_ranks: int, speaks: bool) -> None:
    """Wait until all ranks have done `what`, without a timeout.

    If a rank has died, the supervisor ends those that wait for it.

    The rank that `speaks` logs for whom it waits.

    Raises:
        RuntimeError: rank 0, which has the store, is gone.
    """
    start_s, next_word_s, poll_s = time.monotonic(), FIRST_WORD_S, _FIRST_POLL_S
    while not store.check([f"{what}/all"]):
        waited_s = time.monotonic() - start_s
        if speaks and waited_s >= next_word_s:
            late = [rank for rank in range(num_ranks) if not store.check([f"{what}/{rank}"])]
            log.warning("%s: waiting for %.0f s by now for %s", what, waited_s, _named(store, late))
            next_word_s = 2 * waited_s
        time.sleep(poll_s)
        poll_s = min(_LAST_POLL_S, 2 * poll_s)


def _named(store: dist.Store, ranks: list[int]) -> str:
    """Return `n1 (ranks 0-3), n2 (rank 5)`; `no rank` if the last has just arrived."""
    by_node: dict[str, list[int]] = {}
    for rank in ranks:
        by_node.setdefault(store.get(f"node/{rank}").decode(), []).append(rank)
    nodes = (
        f"{node} (rank{'s' if len(there) > 1 else ''} {ranges_text(there)})"
        for node, there in by_node.items()
    )
    return ", ".join(nodes) or "no rank"


# Process group of all ranks, and small agreements between them on the host.


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
        """Wait until all ranks have called this, without a timeout; see `meeting`."""
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
    default = dist.group.WORLD
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
