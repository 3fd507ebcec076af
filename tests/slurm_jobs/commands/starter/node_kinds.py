"""Two kinds of nodes, of which one has GPUs."""

from __future__ import annotations

from slurm_jobs.cluster.limits import NodeKind

KINDS = (
    NodeKind(num_nodes=2, cpus=8, mem_mb=16 * 1024, gpus={"a100": 1}),
    NodeKind(num_nodes=1, cpus=64, mem_mb=64 * 1024),
)
