"""All-reduce over gloo between the nodes of a job, which a training needs at its start.

Each node runs it in a separate process, because it may hang: gloo binds to the address of the
host's name, unless GLOO_SOCKET_IFNAME names an interface, and waits if the others cannot reach
that address.
"""

from __future__ import annotations

import os

from pipeline.nodes.doctor.separate_python import MARK, ask_python
from slurm_jobs.formats.node_records.doctor_facts import AllReduceFacts
from slurm_jobs.formats.records.task_context import TaskContext

ALL_REDUCE_LIMIT_S = 90.0
"""Mostly for importing torch from a slow file system."""
_GROUP_LIMIT_S = 45.0
_ALL_REDUCE_CODE = """
import datetime, json, sys, time
address, rank, size, limit_s, mark = sys.argv[1:6]
try:
    import torch
    import torch.distributed as dist

    limit = datetime.timedelta(seconds=float(limit_s))
    dist.init_process_group(
        "gloo", init_method=address, rank=int(rank), world_size=int(size), timeout=limit
    )
    dist.all_reduce(torch.zeros(1))
    value = torch.full((1,), float(rank))
    start_s = time.monotonic()
    dist.all_reduce(value)
    seconds = time.monotonic() - start_s
    if value.item() != sum(range(int(size))):
        raise ValueError(f"the sum over ranks is {value.item()}")
    print(mark + json.dumps(seconds), flush=True)
    dist.barrier()
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def all_reduce(context: TaskContext, limit_s: float = ALL_REDUCE_LIMIT_S) -> AllReduceFacts:
    """Reduce one number over the nodes of the job, or return why that failed."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    if context.num_nodes == 1:
        return AllReduceFacts(interface=interface, problem="the job has one node")
    host = f"[{context.main_addr}]" if ":" in context.main_addr else context.main_addr
    address = f"tcp://{host}:{context.main_port}"
    group_limit_s = min(_GROUP_LIMIT_S, limit_s)
    words = [address, context.rank, context.num_ranks, group_limit_s, MARK]
    seconds, problem = ask_python(_ALL_REDUCE_CODE, [str(word) for word in words], limit_s=limit_s)
    return AllReduceFacts(interface=interface, seconds=seconds, problem=problem)
