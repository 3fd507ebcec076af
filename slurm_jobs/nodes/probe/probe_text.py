"""Probe measurements as text, for the terminal and the page. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from slurm_jobs.base import units
from slurm_jobs.formats.node_records.probe_measures import MEASURES, NodeProbe, Unit
from slurm_jobs.nodes.probe.node_comparison import OLD_DAYS, SlowMeasure, others_busy

BY_NAME = {measure.name: measure for measure in MEASURES}
NOTHING = "-"
"""Shown where nothing was measured; the reason is printed next to the tables."""
COMPUTE_COLUMNS = (
    *("node", "GPUs", "cores usable", "one core", "matmul", "host to GPU: pinned, pageable"),
    *("network: bandwidth, latency", "fastest link"),
)
FILE_COLUMNS = (
    *("node", "node-local: read, write", "small file: create, open"),
    *("shared: read, write", "small file: create, open"),
)
_UNITS: dict[Unit, tuple[tuple[float, str], ...]] = {
    "flops/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1.0, "FLOP/s")),
    "bytes/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")),
    "bits/s": ((1e9, "Gb/s"), (1e6, "Mb/s"), (1.0, "b/s")),
    "loops/s": ((1e6, "M loops/s"), (1.0, "loops/s")),
    "cores": ((1.0, "cores"),),
}


def value_text(unit: Unit, value: float) -> str:
    """Format a value: `12.3 TFLOP/s`, `1.20 GB/s` (of 10^9), `340 us`, `15.8 cores`."""
    if unit == "s":
        return units.seconds(value)
    size, name = next((pair for pair in _UNITS[unit] if value >= pair[0]), _UNITS[unit][-1])
    return f"{units.significant(value / size)} {name}"


def number_text(probe: NodeProbe, name: str) -> str:
    """Format one number of a probe by its name; `-` if it is missing."""
    value = probe.numbers.get(name)
    return NOTHING if value is None else value_text(BY_NAME[name].unit, value)


def slow_text(slow: SlowMeasure) -> str:
    """Format `node-local read 0.41 GB/s, 35 % of the median of 3 others (1.17 GB/s)`."""
    measure = BY_NAME[slow.name]
    note = f", measured with {slow.partner}" if slow.partner else ""
    if slow.days_apart > OLD_DAYS:
        note += f"; others were probed up to {slow.days_apart:,.0f} days before or after it"
    return (
        f"{measure.label} {value_text(measure.unit, slow.value)}, {units.percent(slow.share)} of "
        f"the median of {slow.num_others} others ({value_text(measure.unit, slow.median)}){note}"
    )


def compute_row(probe: NodeProbe) -> tuple[str, ...]:
    """Return the row of one node under `COMPUTE_COLUMNS`."""
    names = [n for n in BY_NAME if n.startswith("matmul_") and n in probe.numbers]
    names.sort(key=lambda name: -probe.numbers[name])
    matmuls = [f"{number_text(probe, name)} {name.split('_')[1]}" for name in names]
    group = "nccl" if "nccl_bytes_per_s" in probe.numbers else "network"
    return (
        probe.node,
        _cards(probe),
        _cores(probe),
        number_text(probe, "core_loops_per_s"),
        ", ".join(matmuls) or NOTHING,
        _both(probe, "host_to_device_pinned_bytes_per_s", "host_to_device_pageable_bytes_per_s"),
        _both(probe, f"{group}_bytes_per_s", f"{group}_latency_s"),
        number_text(probe, "link_bits_per_s"),
    )


def file_row(probe: NodeProbe) -> tuple[str, ...]:
    """Return the row of one node under `FILE_COLUMNS`."""
    cells = [probe.node]
    for place in ("local", "shared"):
        text = _both(probe, f"{place}_read_bytes_per_s", f"{place}_write_bytes_per_s")
        note = _read_note(probe, place)
        cells += [
            f"{text} ({note})" if note else text,
            _both(probe, f"{place}_create_s", f"{place}_open_s"),
        ]
    return tuple(cells)


def measure_rows(probes: Sequence[NodeProbe]) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of a table with one column per node: every measure that a node has."""
    rows = []
    for measure in MEASURES:
        if any(measure.name in probe.numbers for probe in probes):
            is_cores = measure.name == "cores_usable"
            cells = [_cores(p) if is_cores else number_text(p, measure.name) for p in probes]
            rows.append([measure.label, *cells])
    return ["", *(probe.node for probe in probes)], rows


def cards(probes: Iterable[NodeProbe]) -> list[str]:
    """Return lines such as `4 x NVIDIA A100-SXM4-40GB: n1, n2`; nodes without a GPU have none."""
    nodes: dict[str, list[str]] = {}
    for probe in probes:
        nodes.setdefault(_cards(probe), []).append(probe.node)
    return [f"{text}: {', '.join(names)}" for text, names in nodes.items() if text != NOTHING]


def warm_reads(probes: Iterable[NodeProbe]) -> list[str]:
    """Return notes on reads that are, or may be, from memory."""
    nodes: dict[str, list[str]] = {}
    for probe in probes:
        for place, label in (("local", "node-local"), ("shared", "shared")):
            if note := _read_note(probe, place):
                nodes.setdefault(f"{label} {note}", []).append(probe.node)
    return [f"{text}: {', '.join(names)}" for text, names in nodes.items()]


def _cards(probe: NodeProbe) -> str:
    gpus = sorted(Counter(probe.gpus).items())
    return ", ".join(f"{number} x {name}" for name, number in gpus) or NOTHING


def _read_note(probe: NodeProbe, place: str) -> str:
    """Return `reads from memory`, `reads may be from memory`, or an empty string."""
    is_cold = (probe.details.get(place) or {}).get("reads_are_cold")
    if is_cold or f"{place}_read_bytes_per_s" not in probe.numbers:
        return ""
    return f"reads {'may be ' if is_cold is None else ''}from memory"


def _cores(probe: NodeProbe) -> str:
    value = probe.numbers.get("cores_usable")
    of = f" of {probe.num_asked_cores}"
    return NOTHING if value is None else f"{units.significant(value)}{of}"


def _both(probe: NodeProbe, *names: str) -> str:
    texts = [number_text(probe, name) for name in names]
    return NOTHING if set(texts) == {NOTHING} else ", ".join(texts)


def reasons(probes: Iterable[NodeProbe]) -> list[str]:
    """Return the reasons for missing measures, each once with its measures and nodes."""
    groups: dict[str, dict[str, None]] = {}
    nodes: dict[str, dict[str, None]] = {}
    for probe in probes:
        for group, reason in probe.reasons.items():
            groups.setdefault(reason, {})[group.replace("_", " ")] = None
            nodes.setdefault(reason, {})[probe.node] = None
    return [
        f"{', '.join(groups[reason])} not measured on {', '.join(nodes[reason])}: {reason}"
        for reason in groups
    ]


def topology(probes: Sequence[NodeProbe]) -> list[str]:
    """Return the links between the GPUs of each node that has several."""
    links = {probe.node: (probe.details.get("gpu") or {}).get("links_told") for probe in probes}
    return [f"links between the GPUs of {node}: {text}" for node, text in links.items() if text]


def busy(probes: Iterable[NodeProbe]) -> list[str]:
    """Return notes on nodes that other jobs used during the probe."""
    return [
        f"others kept {units.significant(num_busy)} of {probe.num_cores} cores of {probe.node} "
        "busy when it was measured: its numbers may be better without them"
        for probe in probes
        if (num_busy := others_busy(probe)) is not None
    ]
