"""Read rates of file systems, from the newest probes of the nodes. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_jobs.common.probe_records import NodeProbe
from slurm_jobs.doctor.model import Check
from slurm_jobs.probes.texts import number_text
from slurm_jobs.report import words

_SLOW_READ = {"local": 200e6, "shared": 50e6}
"""Bytes per second. Own choice: below it a GPU node waits for images, see docs/report-rules.md."""
_OLD_S = 30 * 86_400.0


def probe_checks(
    probes: Sequence[NodeProbe], problems: Sequence[str], now_unix_s: float, command: str
) -> Iterator[Check]:
    """Yield one check per file system, for the node with the slowest read."""
    name = "file-rates"
    if not probes:
        why = f" ({problems[0]})" if problems else ""
        finding = f"not measured: no probe of a node is stored next to the runs{why}"
        yield Check(name=name, standing="unknown", told=finding, remedy=command)
        return
    for place, label in (("local", "node-local"), ("shared", "shared")):
        read = f"{place}_read_bytes_per_s"
        measured = [probe for probe in probes if read in probe.numbers]
        if not measured:
            finding = f"{label}: no probe could measure it"
            yield Check(name=name, standing="unknown", told=finding, remedy=command)
            continue
        slowest = min(measured, key=lambda probe: probe.numbers[read])
        age_s = now_unix_s - slowest.measured_unix_s
        finding = (
            f"{label}: {number_text(slowest, read)} read, "
            f"{number_text(slowest, f'{place}_write_bytes_per_s')} written on {slowest.node}, the "
            f"slowest of {len(measured)} probed ({words.seconds(max(0.0, age_s))} ago)"
        )
        is_slow = slowest.numbers[read] < _SLOW_READ[place]
        if is_slow or age_s > _OLD_S:
            yield Check(name=name, standing="warning", told=finding, remedy=command)
        else:
            yield Check(name=name, standing="ok", told=finding)
