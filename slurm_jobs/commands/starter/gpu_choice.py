"""Texts of `init` about its choice of GPUs: which there are, which it took and why."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slurm_jobs.base.units import number_of
from slurm_jobs.cluster.mig import is_slice
from slurm_jobs.commands.starter.starter_facts import JobPlace, PartitionRoom
from slurm_jobs.spec.overrides.text_edits import inline_text


@dataclass(frozen=True, kw_only=True, slots=True)
class _Nodes:
    """Nodes of a partition that have equally many GPUs of a type."""

    partition: str
    gpu_type: str
    gpus: int
    features: tuple[str, ...]
    """Only where the site names no types: a feature may be the type."""
    num_nodes: int

    def text(self) -> str:
        features = f" (features {', '.join(self.features)})" if self.features else ""
        gpus = f"{self.gpus} x {self.gpu_type or 'GPU'}{features}"
        return f"{number_of('node', self.num_nodes)} with {gpus} in partition {self.partition}"


def room_text(room: PartitionRoom) -> str:
    """Return `partition gpu: 2 nodes of 8 cores, 15 GB, 4 x a100, at most 24 h a job`."""
    where = "this machine: "
    if room.partition:
        where = f"partition {room.partition}: {number_of('node', room.num_nodes)} of "
    mem = "" if math.isinf(room.mem_gb) else f", {room.mem_gb:.0f} GB"
    gpus = f", {room.gpus} x {room.gpu_type or 'GPU'}" if room.gpus else ""
    gpus += " (a MIG slice; a training can use one per node)" if is_slice(room.gpu_type) else ""
    limit = f", at most {room.max_time_min / 60:g} h a job" if room.max_time_min else ""
    return f"{where}{number_of('core', room.cpus)}{mem}{gpus}{limit}"


def gpu_lines(place: JobPlace) -> list[str]:
    """Return a line for each kind of nodes with GPUs that are open to the user, the chosen first.

    It says why they were chosen, or how a stage asks for them. There are no lines if there is only
    one kind.
    """
    room, groups = place.gpu, list(_groups(place))
    if room is None or len(groups) < 2:
        return []
    taken = [nodes for nodes in groups if _is_in(nodes, room)]
    others = [nodes for nodes in groups if not _is_in(nodes, room)]
    why = f"trainings get these, {_reason(place, room, others)}"
    if len(taken) > 1:  # they differ only in their features
        why = "trainings get any of these; set `resources: {gpu: FEATURE}` to choose"
    lines = [f"{nodes.text()}: {why}" for nodes in taken]
    for nodes in others:
        request = inline_text(_request(nodes, room))
        lines.append(f"{nodes.text()}: to train on these, set `resources: {request}`")
    return lines


def gpu_comments(place: JobPlace) -> list[str]:
    """Return the lines on GPU types and on the choice as comments of a profile."""
    return [
        wrapped
        for line in gpu_lines(place)
        for wrapped in textwrap.wrap(
            line, 98, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False
        )
    ]


def _groups(place: JobPlace) -> Iterator[_Nodes]:
    """Yield the nodes of each partition with GPUs by type and number."""
    for name in dict.fromkeys(room.partition for room in place.gpu_rooms):
        counts: dict[tuple[str, int, tuple[str, ...]], int] = {}
        for kind in place.limits.partitions[name or ""].kinds:
            for gpu_type, gpus in kind.gpus.items():
                features = () if gpu_type else tuple(sorted(kind.features))
                key = (gpu_type, gpus, features)
                counts[key] = counts.get(key, 0) + (kind.num_nodes if gpus else 0)
        for (gpu_type, gpus, features), num_nodes in counts.items():
            if num_nodes:
                yield _Nodes(
                    partition=name or "",
                    gpu_type=gpu_type,
                    gpus=gpus,
                    features=features,
                    num_nodes=num_nodes,
                )


def _is_in(nodes: _Nodes, room: PartitionRoom) -> bool:
    is_same_number = nodes.gpus >= room.gpus  # of slices a training gets one per node
    return (nodes.partition, nodes.gpu_type) == (room.partition, room.gpu_type) and is_same_number


def _reason(place: JobPlace, room: PartitionRoom, others: list[_Nodes]) -> str:
    if room != place.gpu_rooms[0]:
        return "as you chose"
    more = [nodes for nodes in others if nodes.num_nodes * nodes.gpus > room.num_nodes * room.gpus]
    if any(not is_slice(nodes.gpu_type) for nodes in more):
        return "because these nodes have most GPUs of their type"
    if more:
        return "because whole cards come before MIG slices"
    return "because there are most of them"


def _request(nodes: _Nodes, room: PartitionRoom) -> dict[str, Any]:
    """Return what a stage that has the room's request must change to get these nodes."""
    gpus = 1 if is_slice(nodes.gpu_type) else nodes.gpus
    request: dict[str, Any] = {}
    if nodes.gpu_type != room.gpu_type:
        request["gpu"] = nodes.gpu_type or "FEATURE"
    if gpus != room.gpus:
        request |= {"gpus_per_node": gpus, "tasks_per_node": gpus}
    if nodes.partition != room.partition:
        request["slurm"] = {"partition": nodes.partition}
    return request
