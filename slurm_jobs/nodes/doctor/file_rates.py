"""Read rates of file systems, from the newest probes of the nodes. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_jobs.base import units
from slurm_jobs.formats.node_records.probe_measures import NodeProbe
from slurm_jobs.nodes.doctor.doctor_check import Check, Judgement
from slurm_jobs.nodes.probe.probe_text import number_text

_SLOW_READ = {"local": 200e6, "shared": 50e6}
"""Bytes per second. Own choice: below it a GPU node waits for images (report-rules.md)."""
_OLD_S = 30 * 86_400.0


def probe_checks(
    probes: Sequence[NodeProbe], problems: Sequence[str], now_unix_s: float, command: str
) -> Iterator[Check]:
    """Yield one check per file system, for the node with the slowest read."""
    name = "file-rates"
    if not probes:
        reason = f" ({problems[0]})" if problems else ""
        finding = f"not measured: no probe of a node is stored next to the runs{reason}"
        yield Judgement("unknown", finding, command).named(name)
        return
    for place, label in (("local", "node-local"), ("shared", "shared")):
        read, written = f"{place}_read_bytes_per_s", f"{place}_write_bytes_per_s"
        measured = [probe for probe in probes if read in probe.numbers]
        if not measured:
            finding = f"{label}: no probe could measure it"
            yield Judgement("unknown", finding, command).named(name)
            continue
        slowest = min(measured, key=lambda probe: probe.numbers[read])
        age_s = now_unix_s - slowest.measured_unix_s
        finding = (
            f"{label}: {number_text(slowest, read)} read, {number_text(slowest, written)} written "
            f"on {slowest.node}, the slowest of {len(measured)} probed "
            f"({units.seconds(max(0.0, age_s))} ago)"
        )
        if slowest.numbers[read] < _SLOW_READ[place] or age_s > _OLD_S:
            yield Judgement("warning", finding, command).named(name)
        else:
            yield Judgement("ok", finding).named(name)
