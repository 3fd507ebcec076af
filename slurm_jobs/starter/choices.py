"""Choice of partition, GPUs and share of a node, from the cluster's limits. PURE.

The first choice is meant to run, not to be the fastest: one node, all of its GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

from slurm_jobs.cluster.limits import ClusterLimits, NodeKind, Partition
from slurm_jobs.starter.model import Data, Model, Place, Room

_MOST_SLICES = 400
ROWS_A_SLICE = 2000
"""A slice of so many images takes minutes: long compared with a job's start, cheap to repeat."""
TRAIN_MIN = 720
"""First guess; the report shows how much of it was used."""
_CARD_GB = {"t4": 16, "v100": 16, "p100": 16, "a10": 24, "l4": 24, "a30": 24, "a40": 48}
_CARD_GB |= {"l40": 48, "l40s": 48, "a100": 40, "h100": 80, "h200": 141}
"""The smallest memory that NVIDIA sold a card of that name with, in GB; data sheets, 2025."""
_LEAST_MB = 1024
"""Lower bound: no node has less."""
_PROCESS_GB = 3
"""Host memory of a process with CUDA; the sums in the recipes use the same value."""


def choose_place(
    limits: ClusterLimits,
    *,
    groups: Collection[str] = (),
    node_local_dir: str = "/tmp",  # noqa: S108 - as the profile's default
    account: str | None = None,
    partition: str | None = None,
) -> Place:
    """Choose where jobs go on a cluster.

    Args:
        limits: Answers of Slurm.
        groups: Groups of the user, for partitions that require one.
        node_local_dir: Slurm's own `TmpFS`, which sites set to the nodes' disk.
        account: Account named by the user; otherwise Slurm's default.
        partition: Partition for GPUs named by the user; otherwise the one with most.
    """
    accounts = tuple(sorted({one.account for one in limits.associations}))
    usable = [
        p for p in limits.partitions.values() if _num_nodes(p) and _is_open(p, groups, accounts)
    ]
    rooms = sorted(_gpu_rooms(usable, limits), key=lambda room: -room.num_nodes * room.gpus)
    named = [room for room in rooms if partition in {None, room.partition}]
    return Place(
        name=limits.cluster_name or "cluster",
        is_slurm=True,
        cpu=_cpu_room(usable, limits),
        gpu=named[0] if named else None,
        gpu_rooms=tuple(rooms),
        accounts=accounts,
        account=account,
        node_local_dir=node_local_dir,
        limits=limits,
        notes=limits.problems,
    )


def _is_open(partition: Partition, groups: Collection[str], accounts: Collection[str]) -> bool:
    """Check whether this user's jobs may start in it, from the partition's own settings."""
    of_groups, of_accounts = partition.allow_groups, partition.allow_accounts
    return (
        partition.is_up
        and (of_groups is None or bool({*of_groups} & {*groups}))
        and (of_accounts is None or not accounts or bool({*of_accounts} & {*accounts}))
    )


def _gpu_rooms(partitions: Iterable[Partition], limits: ClusterLimits) -> Iterator[Room]:
    """Yield a room for each type of GPU in each partition: its nodes with the largest number."""
    for partition in partitions:
        types = dict.fromkeys(t for kind in partition.kinds for t, n in kind.gpus.items() if n)
        for gpu_type in types:
            kinds = [kind for kind in partition.kinds if kind.gpus.get(gpu_type)]
            most = max(kind.gpus[gpu_type] for kind in kinds)
            full = [kind for kind in kinds if kind.gpus[gpu_type] == most]
            yield _room(partition, full, limits, gpu_type=gpu_type, gpus=most)


def _cpu_room(partitions: list[Partition], limits: ClusterLimits) -> Room:
    """Return the default partition if it has nodes without GPUs, or the largest that has."""
    without = [p for p in partitions if any(not k.gpus for k in p.kinds)]
    best = sorted(without or partitions, key=lambda p: (not p.is_default, -_num_nodes(p)))
    if not best:
        return Room(partition=None, num_nodes=1, cpus=1, mem_gb=math.inf)
    kinds = [kind for kind in best[0].kinds if not kind.gpus] or list(best[0].kinds)
    return _room(best[0], kinds, limits)


def _num_nodes(partition: Partition) -> int:
    return sum(kind.num_nodes for kind in partition.kinds)


def _room(
    partition: Partition,
    kinds: list[NodeKind],
    limits: ClusterLimits,
    *,
    gpu_type: str = "",
    gpus: int = 0,
) -> Room:
    """Return the room of nodes of these kinds: the minimum of each resource."""
    qos = limits.qos.get(partition.qos or "")
    times = [partition.max_time_min, qos.max_wall_min if qos else None]
    return Room(
        partition=partition.name,
        num_nodes=sum(kind.num_nodes for kind in kinds),
        cpus=min((kind.cpus for kind in kinds), default=1),
        mem_gb=_known_gb(min((kind.mem_mb for kind in kinds), default=0)),
        gpu_type=gpu_type,
        gpus=gpus,
        max_time_min=min((t for t in times if t is not None), default=None),
    )


def _known_gb(mem_mb: float) -> float:
    """Convert the memory that the site states; Slurm reports 1 MB for nodes that state none."""
    return mem_mb / 1024 if mem_mb >= _LEAST_MB else math.inf


def num_slices(data: Data, limits: ClusterLimits) -> int:
    """Return the number of preprocessing slices: one per 2,000 rows, within the site's limit."""
    num_rows = 8 * ROWS_A_SLICE if data.num_rows is None else data.num_rows
    wanted = math.ceil(num_rows / ROWS_A_SLICE)
    return max(1, min(wanted, _MOST_SLICES, limits.max_array_size or _MOST_SLICES))


def needs_4_bits(model: Model, room: Room | None) -> bool:
    """Check whether sharded weights in 16 bits leave too little memory of a GPU.

    They may take a third of it: gathered layers, activations and logits are added.
    """
    if room is None or model.weights_gb is None:
        return False
    card_gb = _CARD_GB.get(room.gpu_type.lower())
    return card_gb is not None and model.weights_gb / room.gpus > card_gb / 3


def train_mem_gb(model: Model, room: Room) -> int:
    """Return the memory of a node: the export's weights in fp32, once more merged, and processes.

    The recipes' comments add up the same. The maximum is nine tenths of the node.
    """
    weights_gb = 16.0 if model.weights_gb is None else 2 * model.weights_gb
    needed = 1.6 * weights_gb + _PROCESS_GB * max(1, room.gpus) + 2
    return max(1, math.floor(min(needed, 0.9 * room.mem_gb)))


def minutes(wanted: float, room: Room) -> int:
    """Return a time limit that the room allows."""
    return math.floor(wanted if room.max_time_min is None else min(wanted, room.max_time_min))
