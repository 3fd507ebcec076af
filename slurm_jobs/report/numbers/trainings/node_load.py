"""Load of each node during a training's measured steps. PURE.

Readings count if their interval ended within the steps. This excludes start-up and export, when
devices are idle for good reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slurm_jobs.report.inputs.run_inputs import NodeReadings
from slurm_jobs.report.steps.attempt_steps import AttemptSteps
from slurm_jobs.report.values.load_model import Level, NodeLoad

MIN_READINGS = 10
"""Fewer readings do not show a spread. Own choice."""
_RECEIVED = ("network_receive_bytes_per_s", "infiniband_receive_bytes_per_s")


def node_loads(
    readings: Sequence[NodeReadings],
    attempts: Sequence[AttemptSteps],
    resources: Mapping[str, Any],
) -> tuple[NodeLoad, ...]:
    """Return an entry per node, over all attempts of one slice that ran there.

    Args:
        readings: readings of the nodes.
        attempts: attempts with the measured steps.
        resources: request of the stage.
    """
    spans: dict[int, tuple[float, float]] = {}
    for attempt in attempts:
        if attempt.num_measured:
            records = attempt.measured(attempt.longest)
            end = float(records[-1]["start_unix_s"] + records[-1]["step_s"])
            spans[attempt.attempt] = float(records[0]["start_unix_s"]), end
    by_node: dict[str, list[tuple[NodeReadings, np.ndarray]]] = {}
    for each in readings:
        if each.attempt in spans:
            begin, end = spans[each.attempt]
            at = each.readings["unix_s"]
            within = each.readings[(at - each.readings["interval_s"] >= begin) & (at <= end)]
            if len(within):
                by_node.setdefault(each.node, []).append((each, within))
    num_asked = resources.get("cpus_per_task")
    if num_asked is not None:
        num_asked = int(num_asked) * max(1, int(resources.get("tasks_per_node") or 1))
    return tuple(
        _load(node, parts, num_ranks_at_a_time(attempts, node), num_asked)
        for node, parts in sorted(by_node.items())
    )


def num_ranks_at_a_time(attempts: Sequence[AttemptSteps], node: str) -> int:
    """Return the largest number of concurrent ranks: attempts may have different ranks there."""
    return max(sum(timing.node == node for timing in attempt.ranks) for attempt in attempts)


def has_readings(level: Level | None, num_each: int = 1) -> bool:
    """Check whether there are enough readings; `num_each` at one moment count as one."""
    return level is not None and level.num >= MIN_READINGS * num_each


def mean_of(level: Level | None) -> float:
    """Return the mean reading; 0 without readings."""
    return level.mean if level is not None else 0.0


def level_of(parts: Sequence[tuple[NodeReadings, np.ndarray]], name: str) -> Level | None:
    """Return the level of a kind of reading over nodes or attempts; None without values."""
    return _summed_up([(part[name], part["interval_s"]) for _, part in parts if len(part)])


def cores_of_others(load: NodeLoad) -> float | None:
    """Return the mean number of the job's cores that other processes keep busy.

    None without enough readings. Others include kernel threads for devices and file systems, the
    host of a virtual machine, and for up to 30 s processes that the job has started.
    """
    others = load.other_cores
    if others is None or not has_readings(others):
        return None
    return max(0.0, others.mean)


def cores_taken(load: NodeLoad) -> float | None:
    """Return how many of the requested cores others keep busy; None without enough readings.

    Without binding, a job may use all cores, and neighbours may use theirs. So only what others
    take beyond the cores that the job did not request counts.
    """
    others = cores_of_others(load)
    if others is None:
        return None
    return max(0.0, others - load.num_cores_unasked)


def _load(
    node: str,
    parts: Sequence[tuple[NodeReadings, np.ndarray]],
    num_ranks: int,
    num_cores_asked: int | None,
) -> NodeLoad:
    metadata_of_parts = [each.metadata for each, _ in parts]
    gpus = [gpu for metadata in metadata_of_parts for gpu in metadata.get("gpus") or ()]
    sizes = [float(gpu["memory_bytes"]) for gpu in gpus if gpu.get("memory_bytes")]
    used = np.concatenate([part["gpu_memory_used_bytes"].ravel() for _, part in parts])
    used = used[np.isfinite(used)]
    num_cores_of_parts = np.array([_num_cores(each) for each, _ in parts])
    num_cores = int(num_cores_of_parts.max())
    unasked = num_cores_of_parts - np.minimum(num_cores_asked or num_cores, num_cores_of_parts)
    return NodeLoad(
        node=node,
        num_readings=sum(len(part) for _, part in parts),
        num_ranks=num_ranks,
        num_cores=num_cores,
        num_cores_asked=min(num_cores_asked or num_cores, num_cores),
        cpu_busy=level_of(parts, "cpu_busy_share"),
        cpu_iowait=level_of(parts, "cpu_iowait_share"),
        job_cpu_cores=level_of(parts, "job_cpu_s_per_s"),
        other_cores=of_others(parts),
        num_cores_unasked=float(np.average(unasked, weights=[len(part) for _, part in parts])),
        disk_read=level_of(parts, "disk_read_bytes_per_s"),
        network_receive=_received(parts),
        link_bytes_per_s=_link_speed(metadata_of_parts),
        gpu_names=tuple(str(gpu.get("name", "")) for gpu in metadata_of_parts[0].get("gpus") or ()),
        gpu_busy=level_of(parts, "gpu_busy_share"),
        gpu_memory_peak_bytes=float(used.max()) if len(used) else None,
        gpu_memory_bytes=min(sizes, default=None),
    )


def of_others(parts: Sequence[tuple[NodeReadings, np.ndarray]]) -> Level | None:
    """Return cores that other processes keep busy, per attempt; readings may lack a part."""
    return _summed_up(
        [
            (
                part["cpu_busy_share"] * _num_cores(each) - part["job_cpu_s_per_s"],
                part["interval_s"],
            )
            for each, part in parts
            if len(part)
        ]
    )


def _num_cores(readings: NodeReadings) -> int:
    return len(readings.metadata.get("cores") or ())


def _link_speed(metadata: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the speed from the attempt whose node reported most links."""
    sums = [
        sum(
            float(link.get("bits_per_s") or 0) for link in entry.get("links") or () if link["is_up"]
        )
        for entry in metadata
    ]
    return max(sums) / 8 or None


def _received(parts: Sequence[tuple[NodeReadings, np.ndarray]]) -> Level | None:
    """Return the larger of two lower bounds of all traffic.

    A kernel counts what InfiniBand carries for its network stack, but not RDMA; ports count both.
    """
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for _, part in parts:
        both = np.stack([np.nan_to_num(part[name], nan=-1.0) for name in _RECEIVED]).max(axis=0)
        pairs.append((np.where(both < 0, np.nan, both), part["interval_s"]))
    return _summed_up(pairs)


def _summed_up(pairs: Sequence[tuple[Any, np.ndarray]]) -> Level | None:
    """Return the time-weighted summary; a reading of several GPUs counts once for each."""
    if not pairs:
        return None
    tables = [np.asarray(v, np.float64).reshape(len(w), -1) for v, w in pairs]
    values = np.concatenate([table.ravel() for table in tables])
    repeated = [np.repeat(w, t.shape[1]) for (_, w), t in zip(pairs, tables, strict=True)]
    weights = np.concatenate(repeated).astype(np.float64)
    is_known = np.isfinite(values) & (weights > 0)
    values, weights = values[is_known], weights[is_known]
    if not len(values):
        return None
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    low, high = (values[order][np.searchsorted(reached, share)] for share in (0.05, 0.95))
    mean = float(np.average(values, weights=weights))
    return Level(mean=mean, p5=float(low), p95=float(high), num=len(values))
