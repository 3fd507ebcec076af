"""Places for jobs on clusters of several kinds of nodes."""

from __future__ import annotations

from slurm_jobs.cluster.limits import ClusterLimits, NodeKind, Partition
from slurm_jobs.commands.starter.place_choice import choose_place
from slurm_jobs.commands.starter.starter_facts import JobPlace

A100 = NodeKind(num_nodes=4, cpus=64, mem_mb=512 * 1024, gpus={"a100": 4})
V100 = NodeKind(num_nodes=2, cpus=40, mem_mb=384 * 1024, gpus={"v100": 4})
H100 = NodeKind(num_nodes=1, cpus=96, mem_mb=1024 * 1024, gpus={"h100": 8})


def place_of(*kinds: NodeKind, partition: str | None = None, **others: tuple[NodeKind]) -> JobPlace:
    listed = {"gpu": kinds, **others}
    partitions = {name: Partition(name=name, kinds=nodes) for name, nodes in listed.items()}
    limits = ClusterLimits(cluster_name="here", partitions=partitions)
    return choose_place(limits, partition=partition)
