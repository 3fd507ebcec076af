"""Record of a node's probe: names and units of its measures. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from slurm_jobs.common.json_values import END_OF_TIME_S
from slurm_jobs.common.records import known_fields

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


_OF_FILES: tuple[tuple[str, str, Unit], ...] = (
    ("read_bytes_per_s", "read", "bytes/s"),
    ("write_bytes_per_s", "write", "bytes/s"),
    ("create_s", "small file, create", "s"),
    ("open_s", "small file, open and read", "s"),
)
_OF_TALKS: tuple[tuple[str, str, Unit], ...] = (
    ("bytes_per_s", "bandwidth", "bytes/s"),
    ("latency_s", "latency", "s"),
)

MEASURES = (
    Measure(name="cores_usable", label="cores usable", unit="cores", group="cores"),
    Measure(name="core_loops_per_s", label="speed of one core", unit="loops/s", group="cores"),
    *(
        Measure(
            name=f"matmul_{precision}_flops_per_s",
            label=f"matmul {precision}",
            unit="flops/s",
            group="matmul",
        )
        for precision in ("fp32", "fp16", "bf16")
    ),
    *(
        Measure(
            name=f"host_to_device_{kind}_bytes_per_s",
            label=f"host to device, {kind}",
            unit="bytes/s",
            group="host_to_device",
        )
        for kind in ("pinned", "pageable")
    ),
    *(
        Measure(name=f"{place}_{what}", label=f"{told} {label}", unit=unit, group=place)
        for place, told in (("local", "node-local"), ("shared", "shared"))
        for what, label, unit in _OF_FILES
    ),
    *(
        Measure(name=f"{group}_{what}", label=f"{told} {label}", unit=unit, group=group)
        for group, told in (("network", "network (gloo)"), ("nccl", "network (NCCL)"))
        for what, label, unit in _OF_TALKS
    ),
    Measure(name="link_bits_per_s", label="fastest link", unit="bits/s", group="link"),
    Measure(name="other_busy_cores", label="cores busy before", unit="cores", group="load"),
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
        TypeError, KeyError: they are no record.
        ValueError: another version, or values that no probe writes.
    """
    known = known_fields(NodeProbe, values)
    found = NodeProbe(**{**known, "gpus": tuple(known["gpus"])})
    if found.format != FORMAT or not _is_sound(found):
        message = "it is a probe of another version, or damaged"
        raise ValueError(message)
    return found


def _is_sound(probe: NodeProbe) -> bool:
    mappings = (probe.numbers, probe.reasons, probe.details)
    if not all(isinstance(values, Mapping) for values in mappings):
        return False
    lists = [probe.details.get(group, []) for group in ("network", "nccl", "link")]
    others = [probe.details[g] for g in probe.details if g not in {"network", "nccl", "link"}]
    return (
        isinstance(probe.is_partial, bool)
        and all(map(_is_plain, (probe.node, probe.run_id, probe.cpu, *probe.gpus)))
        and all(
            isinstance(num, int) and 0 <= num <= _MOST_CORES
            for num in (probe.num_cores, probe.num_asked_cores)
        )
        and _is_number(probe.measured_unix_s)
        and probe.measured_unix_s < END_OF_TIME_S
        and all(map(_is_number, probe.numbers.values()))
        and all(map(_is_plain, (*probe.reasons, *probe.reasons.values())))
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
