"""Record of a node's probe: names and units of its measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from slurm_jobs.base.json_values import END_OF_TIME_S
from slurm_jobs.formats.records.record_json import record_from_json

Unit = Literal["flops/s", "bytes/s", "bits/s", "s", "cores", "loops/s"]

FORMAT = 1
_MOST = 1e20
"""Largest valid number of a measure or a time; a larger one is damage."""
_MOST_CORES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """Number that a probe measures on a node."""

    name: str
    """Key in `NodeProbe.numbers`, with its unit."""
    label: str
    unit: Unit
    group: str
    """Key in `NodeProbe.reasons` that explains a missing number."""


_MEASURES: tuple[tuple[str, str, Unit, str], ...] = (
    ("cores_usable", "cores usable", "cores", "cores"),
    ("core_loops_per_s", "speed of one core", "loops/s", "cores"),
    ("matmul_fp32_flops_per_s", "matmul fp32", "flops/s", "matmul"),
    ("matmul_fp16_flops_per_s", "matmul fp16", "flops/s", "matmul"),
    ("matmul_bf16_flops_per_s", "matmul bf16", "flops/s", "matmul"),
    ("host_to_device_pinned_bytes_per_s", "host to device, pinned", "bytes/s", "host_to_device"),
    (
        "host_to_device_pageable_bytes_per_s",
        "host to device, pageable",
        "bytes/s",
        "host_to_device",
    ),
    ("local_read_bytes_per_s", "node-local read", "bytes/s", "local"),
    ("local_write_bytes_per_s", "node-local write", "bytes/s", "local"),
    ("local_create_s", "node-local small file, create", "s", "local"),
    ("local_open_s", "node-local small file, open and read", "s", "local"),
    ("shared_read_bytes_per_s", "shared read", "bytes/s", "shared"),
    ("shared_write_bytes_per_s", "shared write", "bytes/s", "shared"),
    ("shared_create_s", "shared small file, create", "s", "shared"),
    ("shared_open_s", "shared small file, open and read", "s", "shared"),
    ("network_bytes_per_s", "network (gloo) bandwidth", "bytes/s", "network"),
    ("network_latency_s", "network (gloo) latency", "s", "network"),
    ("nccl_bytes_per_s", "network (NCCL) bandwidth", "bytes/s", "nccl"),
    ("nccl_latency_s", "network (NCCL) latency", "s", "nccl"),
    ("link_bits_per_s", "fastest link", "bits/s", "link"),
    ("other_busy_cores", "cores busy before", "cores", "load"),
)
MEASURES = tuple(
    Measure(name=name, label=label, unit=unit, group=group)
    for name, label, unit, group in _MEASURES
)
"""Measures in the order in which they are printed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeProbe:
    """Results of one probe on one node."""

    node: str
    run_id: str
    measured_unix_s: float
    cpu: str
    """CPU model, as the kernel names it."""
    num_cores: int
    """Logical cores of the whole node."""
    num_asked_cores: int
    """Cores that the job got there."""
    gpus: tuple[str, ...]
    """Type of each GPU that nvidia-smi showed to the job."""
    numbers: Mapping[str, float]
    """Numbers by the names of `MEASURES`; failed measures are missing."""
    reasons: Mapping[str, str]
    """Reasons of failed measures, by group."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Details of the measurements, by group: sizes, repeats, partners, file systems, links."""
    is_partial: bool = False
    """True if it ended before all measures of the node itself were made; the network does not
    count."""
    format: int = FORMAT


def probe_from_json(values: Mapping[str, Any]) -> NodeProbe:
    """Return the probe in a record's JSON values; keys of newer versions are ignored.

    Raises:
        TypeError, KeyError: they are not a record.
        ValueError: another version, or values that no probe writes.
    """
    probe = record_from_json(NodeProbe, values)
    if probe.format != FORMAT or not _is_valid(probe):
        message = "it is a probe of another version, or damaged"
        raise ValueError(message)
    return probe


def _is_valid(probe: NodeProbe) -> bool:
    mappings = (probe.numbers, probe.reasons, probe.details)
    if not all(isinstance(values, Mapping) for values in mappings):
        return False
    lists = [probe.details.get(group, []) for group in ("network", "nccl", "link")]
    others = [probe.details[g] for g in probe.details if g not in {"network", "nccl", "link"}]
    texts = (probe.node, probe.run_id, probe.cpu, *probe.gpus)
    return (
        isinstance(probe.is_partial, bool)
        and all(map(_is_plain, (*texts, *probe.reasons, *probe.reasons.values())))
        and all(
            isinstance(num, int) and 0 <= num <= _MOST_CORES
            for num in (probe.num_cores, probe.num_asked_cores)
        )
        and all(map(_is_number, (probe.measured_unix_s, *probe.numbers.values())))
        and probe.measured_unix_s < END_OF_TIME_S
        and all(
            isinstance(rows, list) and all(isinstance(r, Mapping) for r in rows) for rows in lists
        )
        and all(isinstance(values, Mapping) for values in others)
        and _is_plain_throughout(probe.details)
        and all(_is_number(talk.get("bytes_per_s")) for rows in lists[:2] for talk in rows)
    )


def _is_plain(text: Any) -> bool:
    """Check for text without control characters, because another user may have written it."""
    return isinstance(text, str) and text.replace("\n", " ").isprintable()


def _is_plain_throughout(values: Any) -> bool:
    """Check all texts in a record's values, at any depth."""
    if isinstance(values, Mapping):
        return all(map(_is_plain_throughout, (*values, *values.values())))
    if isinstance(values, list):
        return all(map(_is_plain_throughout, values))
    return not isinstance(values, str) or _is_plain(values)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < _MOST
