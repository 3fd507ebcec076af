"""Assignment of ranks to shards of a model, and to replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from slurm_jobs.base.errors import StageConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlace:
    """Location of a rank."""

    node_name: str
    local_rank: int


def make_mesh(within: str, device_type: str, places: Sequence[RankPlace]) -> DeviceMesh:
    """Return FSDP's mesh: one dimension, or replicated over nodes and sharded within.

    Raises:
        StageConfigError: `within` is `node`, but nodes do not have equal numbers of ranks in
            order.
    """
    if within == "node":
        names = ("replicate", "shard")
        return init_device_mesh(device_type, shape_by_nodes(places), mesh_dim_names=names)
    return init_device_mesh(device_type, (len(places),), mesh_dim_names=("shard",))


def shape_by_nodes(places: Sequence[RankPlace]) -> tuple[int, int]:
    """Return the number of nodes and of ranks on each.

    Raises:
        StageConfigError: ranks do not count through one node after the other; a mesh of that
            shape would silently shard between nodes.
    """
    nodes = list(dict.fromkeys(place.node_name for place in places))
    counts = Counter(place.node_name for place in places)
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{count} on {node}" for node, count in counts.items())
        message = (
            f"sharding.within is node, but the nodes have unequal numbers of ranks ({listed}): "
            "give every node the same number (resources.tasks_per_node), or set `sharding: "
            "{within: all}`"
        )
        raise StageConfigError(message)
    num_local = counts[nodes[0]]
    expected = [
        RankPlace(node_name=node, local_rank=local) for node in nodes for local in range(num_local)
    ]
    for rank, (place, wanted) in enumerate(zip(places, expected, strict=True)):
        if place != wanted:
            message = (
                f"sharding.within is node, but rank {rank} is number {place.local_rank} on "
                f"{place.node_name} instead of number {wanted.local_rank} on {wanted.node_name}: "
                "ranks must count through one node after the other (srun --distribution=block), "
                "or set `sharding: {within: all}`"
            )
            raise StageConfigError(message)
    return len(nodes), num_local
