"""Choice of partition, GPUs and share of a node, from the cluster's limits.

The first choice is meant to run, not to be the fastest: one node, all of its GPUs.
"""

from __future__ import annotations

import grp
import math
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from slurm_jobs.base.errors import InputError, SchedulerError
from slurm_jobs.cluster.limits import ClusterLimits, NodeKind, Partition
from slurm_jobs.cluster.mig import is_slice, slice_gb
from slurm_jobs.commands.cluster_limits import limits_of
from slurm_jobs.commands.starter.starter_facts import Data, JobPlace, Model, PartitionRoom
from slurm_jobs.spec.profile import ClusterProfile

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
) -> JobPlace:
    """Choose where jobs go on a cluster, from the partitions that are open to this user's jobs.

    There is one room for each type of GPU in a partition: the nodes with most of these GPUs, or
    with MIG slices, of which a training uses one per node. Whole cards come first. CPU jobs go to
    the default partition if it has nodes without GPUs, or the largest that has.

    `groups` are the user's, for partitions that require one; `node_local_dir` is Slurm's `TmpFS`,
    which sites set to the nodes' disk. Without `account` Slurm's default is used, and without
    `partition` the partition with most GPUs.
    """
    accounts = tuple(sorted({entry.account for entry in limits.associations}))
    usable = [
        p
        for p in limits.partitions.values()
        if _num_nodes(p)
        and p.is_up
        and (p.allow_groups is None or {*p.allow_groups} & {*groups})
        and (p.allow_accounts is None or not accounts or {*p.allow_accounts} & {*accounts})
    ]
    rooms = []
    for place in usable:
        types = dict.fromkeys(t for kind in place.kinds for t, n in kind.gpus.items() if n)
        for gpu_type in types:
            most = max(kind.gpus.get(gpu_type, 0) for kind in place.kinds)
            most = 1 if is_slice(gpu_type) else most
            full = [kind for kind in place.kinds if kind.gpus.get(gpu_type, 0) >= most]
            rooms.append(_room(place, full, limits, gpu_type=gpu_type, gpus=most))
    rooms.sort(key=lambda room: (is_slice(room.gpu_type), -room.num_nodes * room.gpus))
    cpu = PartitionRoom(partition=None, num_nodes=1, cpus=1, mem_gb=math.inf)
    if usable:
        with_cpu_nodes = [p for p in usable if any(not kind.gpus for kind in p.kinds)]
        best = min(with_cpu_nodes or usable, key=lambda p: (not p.is_default, -_num_nodes(p)))
        kinds = [kind for kind in best.kinds if not kind.gpus]
        cpu = _room(best, kinds or list(best.kinds), limits)
    return JobPlace(
        name=limits.cluster_name or "cluster",
        is_slurm=True,
        cpu=cpu,
        gpu=next((room for room in rooms if partition in {None, room.partition}), None),
        gpu_rooms=tuple(rooms),
        accounts=accounts,
        account=account,
        node_local_dir=node_local_dir,
        limits=limits,
        notes=limits.problems,
    )


def _num_nodes(partition: Partition) -> int:
    return sum(kind.num_nodes for kind in partition.kinds)


def _room(
    partition: Partition,
    kinds: list[NodeKind],
    limits: ClusterLimits,
    *,
    gpu_type: str = "",
    gpus: int = 0,
) -> PartitionRoom:
    """Return the room of nodes of these kinds: the minimum of each resource."""
    qos = limits.qos.get(partition.qos or "")
    times = [partition.max_time_min, qos.max_wall_min if qos else None]
    mem_mb = min((kind.mem_mb for kind in kinds), default=0)
    return PartitionRoom(
        partition=partition.name,
        num_nodes=sum(kind.num_nodes for kind in kinds),
        cpus=min((kind.cpus for kind in kinds), default=1),
        mem_gb=mem_mb / 1024 if mem_mb >= _LEAST_MB else math.inf,
        gpu_type=gpu_type,
        gpus=gpus,
        max_time_min=min((t for t in times if t is not None), default=None),
    )


def num_slices(data: Data, limits: ClusterLimits) -> int:
    """Return the number of preprocessing slices: one per 2,000 rows, within the site's limit."""
    num_rows = 8 * ROWS_A_SLICE if data.num_rows is None else data.num_rows
    wanted = math.ceil(num_rows / ROWS_A_SLICE)
    return max(1, min(wanted, _MOST_SLICES, limits.max_array_size or _MOST_SLICES))


def needs_4_bits(model: Model, room: PartitionRoom | None) -> bool:
    """Check whether sharded weights in 16 bits leave too little memory of a GPU.

    They may take a third of it: gathered layers, activations and logits are added.
    """
    if room is None or model.weights_gb is None:
        return False
    card_gb = slice_gb(room.gpu_type) or _CARD_GB.get(room.gpu_type.lower())
    return card_gb is not None and model.weights_gb / room.gpus > card_gb / 3


def train_mem_gb(model: Model, room: PartitionRoom) -> int:
    """Return the memory of a node: weights in fp32 for the export, merged copies, and processes.

    The recipes' comments add up the same. The maximum is nine tenths of the node.
    """
    weights_gb = 16.0 if model.weights_gb is None else 2 * model.weights_gb
    needed = 1.6 * weights_gb + _PROCESS_GB * max(1, room.gpus) + 2
    return max(1, math.floor(min(needed, 0.9 * room.mem_gb)))


def minutes(wanted: float, room: PartitionRoom) -> int:
    """Return a time limit that the room allows."""
    return math.floor(wanted if room.max_time_min is None else min(wanted, room.max_time_min))


LOCAL = "local"
_GPUS_DIR = Path("/proc/driver/nvidia/gpus")
"""Folder in which NVIDIA's driver lists its GPUs."""


def inspect_cluster(
    *, account: str | None = None, partition: str | None = None, is_local: bool = False
) -> JobPlace:
    """Return the cluster of this login node, or this machine.

    Raises:
        SchedulerError: Slurm is installed, but does not answer.
        InputError: the user has no such account, or there is no such partition with GPUs.
    """
    if is_local or shutil.which("sbatch") is None:
        if account or partition:
            why = "--local is this machine alone" if is_local else "there is no sbatch here"
            message = f"--account and --partition are for Slurm, and {why}"
            raise InputError(message)
        cores = len(os.sched_getaffinity(0))
        mem_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        cpu = PartitionRoom(partition=None, num_nodes=1, cpus=cores, mem_gb=mem_gb)
        cards = len(list(_GPUS_DIR.iterdir())) if _GPUS_DIR.is_dir() else 0
        gpu = replace(cpu, gpus=cards) if cards else None
        return JobPlace(name=LOCAL, is_slurm=False, cpu=cpu, gpu=gpu)
    limits = limits_of(ClusterProfile())
    unknown = limits.unreachable
    if not any(partition.kinds for partition in limits.partitions.values()):
        unknown = unknown or "; ".join(limits.problems) or "sinfo lists no partition with nodes"
    if unknown:
        message = (
            f"Slurm does not report its nodes, and nothing was written: {unknown}; run the "
            "command again once `sinfo` answers here, or add --local to run the jobs on this "
            "machine"
        )
        raise SchedulerError(message)
    groups = []
    for number in os.getgroups():
        with suppress(KeyError):  # a number without a name
            groups.append(grp.getgrgid(number).gr_name)
    place = choose_place(
        limits,
        groups=groups,
        node_local_dir=limits.tmp_dir or "/tmp",  # noqa: S108 - as the profile's default
        account=account,
        partition=partition,
    )
    partitions = {room.partition or "" for room in place.gpu_rooms}
    for option, value, known in (
        ("--account", account, {*place.accounts}),
        ("--partition", partition, partitions),
    ):
        if value is not None and known and value not in known:  # without known ones Slurm decides
            have = ", ".join(sorted(known))
            message = f"{option} {value}: not here, or not yours (you have: {have})"
            raise InputError(message)
    return place
