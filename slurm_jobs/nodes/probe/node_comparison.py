"""Comparison of nodes by their probes: which ones are slow among similar nodes.

Nodes are similar if they have the same hardware (CPU, GPUs) and their jobs had the same number
of cores; the newest probe of each counts. A measure is compared only with those made the same
way: a read from memory does not compare with one from a disk, and another version of PyTorch
multiplies differently. PURE.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from slurm_jobs.formats.node_records.probe_measures import MEASURES, Measure, NodeProbe

SLOW_SHARE = 0.80
"""A node below this share of the others' lower quartile is slow. Own choice."""
QUARTILE = 4
"""One in this many of the others, from the slowest on, may be slow itself. So a node must be below
three of four others, and below both of two. Against the median, one fast node of three made the two
usual ones slow, and two fast ones of five the other three."""
OLD_DAYS = 30.0
"""Age difference of two probes from which on it is reported: drivers and disks change. Own choice.
"""
_DAY_S = 86400.0
MIN_OTHERS = 2
"""With one other node it is unclear which of the two is slow. Own choice."""
JUDGED = frozenset(
    {
        "cores_usable",
        "core_loops_per_s",
        "matmul_fp32_flops_per_s",
        "matmul_fp16_flops_per_s",
        "matmul_bf16_flops_per_s",
        "host_to_device_pinned_bytes_per_s",
        "host_to_device_pageable_bytes_per_s",
        "local_read_bytes_per_s",
        "network_bytes_per_s",
        "nccl_bytes_per_s",
    }
)
"""Measures of the node itself (the shared file system is not), for which more is better."""
_DAEMONS_CORES, _DAEMONS_SHARE = 0.5, 0.05
_MADE_BY = {
    "cores": ("python",),
    "local": ("file_system", "reads_are_cold"),
    "matmul": ("device", "torch"),
}
"""Details, by group, that must be equal for two numbers to be compared."""
_BEST = {"local_read_bytes_per_s": "fastest_read_bytes_per_s"}
"""Details that have the best repeat of a measure. A node can reach again what it reached once: it
is slow only if its best is slow, too, since other jobs may have used the disk meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowMeasure:
    """Measure in which a node is slow among similar nodes."""

    name: str
    """Key in `MEASURES`."""
    value: float
    median: float
    """Median of the other nodes."""
    num_others: int
    partner: str = ""
    """Other node of a network measurement."""
    days_apart: float = 0.0
    """Difference in time to the most distant probe of the others."""

    @property
    def share(self) -> float:
        """Share of the others' median."""
        return self.value / self.median


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeComparison:
    """Comparison of one node with similar nodes."""

    probe: NodeProbe
    num_compared: int
    """Number of other nodes that at least one measure was compared with."""
    slow: tuple[SlowMeasure, ...]
    """The slowest first."""


def compare(probe: NodeProbe, probes: Sequence[NodeProbe]) -> NodeComparison:
    """Compare a node with `probes`, the newest of each node, without its own."""
    others = [p for p in probes if p.node != probe.node and _hardware(p) == _hardware(probe)]
    slow, most = [], 0
    for measure in MEASURES:
        value = probe.numbers.get(measure.name)
        if measure.name not in JUDGED or value is None:
            continue
        peers = [
            p
            for p in others
            if measure.name in p.numbers and _made_by(p, measure) == _made_by(probe, measure)
        ]
        most = max(most, len(peers))
        if len(peers) < MIN_OTHERS:
            continue
        details = probe.details.get(measure.group) or {}
        best = details.get(_BEST[measure.name]) if measure.name in _BEST else None
        reached = max(value, best) if isinstance(best, int | float) else value
        values = sorted(p.numbers[measure.name] for p in peers)
        if reached >= SLOW_SHARE * values[len(values) // QUARTILE]:
            continue
        talks = details if measure.group in {"network", "nccl"} else ()
        talk = max(talks, key=lambda talk: talk["bytes_per_s"], default=None)
        apart_s = max(abs(p.measured_unix_s - probe.measured_unix_s) for p in peers)
        slow.append(
            SlowMeasure(
                name=measure.name,
                value=value,
                median=statistics.median(values),
                num_others=len(peers),
                partner="" if talk is None else str(talk.get("with", "")),
                days_apart=apart_s / _DAY_S,
            )
        )
    slow.sort(key=lambda s: s.share)
    return NodeComparison(probe=probe, num_compared=most, slow=tuple(slow))


def _hardware(probe: NodeProbe) -> Hashable:
    return probe.cpu, probe.num_cores, tuple(sorted(set(probe.gpus))), probe.num_asked_cores


def _made_by(probe: NodeProbe, measure: Measure) -> Hashable:
    details = probe.details.get(measure.group) or {}
    return tuple(details.get(key) for key in _MADE_BY.get(measure.group, ()))


def others_busy(probe: NodeProbe) -> float | None:
    """Return the cores that other processes kept busy during the probe, if that is notable.

    Half a core and 5 % of the node are the daemons of any node. Own choice.
    """
    num_busy = probe.numbers.get("other_busy_cores", 0.0)
    return num_busy if num_busy > max(_DAEMONS_CORES, _DAEMONS_SHARE * probe.num_cores) else None
