"""Which nodes are slow among their like, by what probes measured of them. PURE.

Compared are nodes of the same hardware (CPU, GPUs) whose jobs were given as many cores; of each
the newest probe. A measure is compared only with those that were made the same way: a read from
memory is none from a disk, and another version of PyTorch multiplies otherwise.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from slurm_jobs.common.probe_records import MEASURES, Measure, NodeProbe

SLOW_SHARE = 0.80
"""Of the lower quartile of the others; under it a node is slow. Own choice."""
QUARTILE = 4
"""Of the others, from the slowest on, one in so many may be slow itself. So a node must lie under
three of four others, and under both where there are two: against the median one fast node of three
made the two usual ones slow, and two fast ones of five the other three."""
OLD_DAYS = 30.0
"""Between two probes; more is told, because drivers and disks change. Own choice."""
_DAY_S = 86400.0
MIN_OTHERS = 2
"""With one other node nobody can say which of the two is the odd one. Own choice."""
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
"""Of a node's own; the shared file system is everybody's. Of each, more is better."""
_DAEMONS_CORES, _DAEMONS_SHARE = 0.5, 0.05
_MADE_BY = {
    "cores": ("python",),
    "local": ("file_system", "reads_are_cold"),
    "matmul": ("device", "torch"),
}
"""Details, by group, that must be equal for two numbers to be compared."""
_BEST = {"local_read_bytes_per_s": "fastest_read_bytes_per_s"}
"""Details that have the best repeat of a measure. What a node reached once it can reach: it is slow
only where its best is, too, since others may have had the disk meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowMeasure:
    """One measure in which a node is slow among its like."""

    name: str
    """Of `MEASURES`."""
    value: float
    median: float
    """Of the others."""
    num_others: int
    partner: str = ""
    """Node that the talk was with, for measures of the network."""
    days_apart: float = 0.0
    """Between this probe and that of the other that lies furthest from it in time."""

    @property
    def share(self) -> float:
        """Of the median of the others."""
        return self.value / self.median


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One node beside its like."""

    probe: NodeProbe
    num_compared: int
    """Other nodes that at least one measure was compared with."""
    slow: tuple[SlowMeasure, ...]
    """The slowest first."""


def compare(probe: NodeProbe, probes: Sequence[NodeProbe]) -> Comparison:
    """A node among `probes`, the newest of each node, of which its own is left out."""
    others = [p for p in probes if p.node != probe.node and _hardware(p) == _hardware(probe)]
    slow, most = [], 0
    for measure in MEASURES:
        if measure.name not in JUDGED or measure.name not in probe.numbers:
            continue
        beside = [
            p
            for p in others
            if measure.name in p.numbers and _made_by(p, measure) == _made_by(probe, measure)
        ]
        most = max(most, len(beside))
        if len(beside) >= MIN_OTHERS:
            slow += _slow(probe, measure, beside)
    slow.sort(key=lambda s: s.share)
    return Comparison(probe=probe, num_compared=most, slow=tuple(slow))


def _slow(probe: NodeProbe, measure: Measure, beside: Sequence[NodeProbe]) -> list[SlowMeasure]:
    """The measure as a list of one, if it is slow."""
    value, others = probe.numbers[measure.name], sorted(p.numbers[measure.name] for p in beside)
    if _reached(probe, measure) >= SLOW_SHARE * others[len(others) // QUARTILE]:
        return []
    apart_s = max(abs(p.measured_unix_s - probe.measured_unix_s) for p in beside)
    talks = probe.details.get(measure.group) if measure.group in {"network", "nccl"} else None
    talk = max(talks or (), key=lambda talk: talk["bytes_per_s"], default=None)
    return [
        SlowMeasure(
            name=measure.name,
            value=value,
            median=statistics.median(others),
            num_others=len(beside),
            partner="" if talk is None else str(talk.get("with", "")),
            days_apart=apart_s / _DAY_S,
        )
    ]


def _reached(probe: NodeProbe, measure: Measure) -> float:
    """The best repeat where it is told, else the measure itself."""
    value = probe.numbers[measure.name]
    key = _BEST.get(measure.name)
    found = (probe.details.get(measure.group) or {}).get(key) if key else None
    return max(value, found) if isinstance(found, int | float) else value


def _hardware(probe: NodeProbe) -> Hashable:
    return probe.cpu, probe.num_cores, tuple(sorted(set(probe.gpus))), probe.num_asked_cores


def _made_by(probe: NodeProbe, measure: Measure) -> Hashable:
    details = probe.details.get(measure.group) or {}
    return tuple(details.get(key) for key in _MADE_BY.get(measure.group, ()))


def others_busy(probe: NodeProbe) -> float | None:
    """Cores that others kept busy when the node was measured, if that is worth telling.

    Half a core and 5 % of the node are the daemons of any node. Own choice.
    """
    num_busy = probe.numbers.get("other_busy_cores", 0.0)
    return num_busy if num_busy > max(_DAEMONS_CORES, _DAEMONS_SHARE * probe.num_cores) else None
