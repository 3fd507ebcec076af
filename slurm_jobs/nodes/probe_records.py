"""Records of `probe`: read, compared between nodes, and shown."""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.shared import units
from slurm_jobs.shared.node_records import (
    MEASURES,
    Measure,
    NodeProbe,
    Unit,
    folder_of_probes,
    is_folder_of_probes,
    read_probe,
)
from slurm_jobs.shared.redact import printable

# Comparison of nodes by their probes: which ones are slow among similar nodes.
#
# Nodes are similar if they have the same hardware (CPU, GPUs) and their jobs had the same number
# of cores; the newest probe of each counts. A measure is compared only with those made the same
# way: a read from memory does not compare with one from a disk, and another version of PyTorch
# multiplies differently.


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
class Comparison:
    """Comparison of one node with similar nodes."""

    probe: NodeProbe
    num_compared: int
    """Number of other nodes that at least one measure was compared with."""
    slow: tuple[SlowMeasure, ...]
    """The slowest first."""


def compare(probe: NodeProbe, probes: Sequence[NodeProbe]) -> Comparison:
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
    return Comparison(probe=probe, num_compared=most, slow=tuple(slow))


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


# Number of nodes in a Slurm host list.


_GROUP = re.compile(r"\[([^\[\]]*)\]")
_IN_BRACKETS = re.compile(r"\[[^\]]*\]?")
_ITEM = re.compile(r"[A-Za-z0-9._-]+(\[[0-9,-]+\][A-Za-z0-9._-]*)*")


def num_named(text: str) -> int:
    """Return the number of names: 6 for `gpu[01-04,7],fat1`.

    Raises:
        ValueError: it is not a host list.
    """
    total = 0
    joined = _IN_BRACKETS.sub(lambda group: group[0].replace(",", "\0"), text)
    for each in joined.split(","):
        item = each.replace("\0", ",").strip()
        if not _ITEM.fullmatch(item):
            message = f"`{item}` is neither the name of a node nor a list such as gpu[01-04,7]"
            raise ValueError(message)
        num = 1
        for group in _GROUP.findall(item):
            num *= sum(map(_num_in, group.split(",")))
        total += num
    return total


def _num_in(part: str) -> int:
    first, dash, last = part.partition("-")
    if not first.isdecimal() or (dash and (not last.isdecimal() or int(last) < int(first))):
        message = f"`{part}` is not a range of numbers, such as 01-04"
        raise ValueError(message)
    return int(last) - int(first) + 1 if dash else 1


# Reader of the probe records of nodes; an unreadable file becomes a problem.


_AHEAD_S = 86_400.0
"""A record further in the future comes from a wrong clock. Own choice."""
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError)


def newest_probes(runs_dir: Path, problems: list[str]) -> tuple[NodeProbe, ...]:
    """Return the newest probe of each node from all runs and users in `runs_dir`, by node.

    An interrupted probe counts where there is no complete one.
    """
    everybodys = filter(is_folder_of_probes, _listed(runs_dir, problems))
    by_node = _files_by_node(everybodys, problems)
    return tuple(probe for files in by_node.values() for probe in _newest(files, problems))


def probes_of_run(runs_dir: Path, run_id: str, problems: list[str]) -> tuple[NodeProbe, ...]:
    """Return the newest probe that a run made of each node, by node; a complete one, if any.

    Only files of the run's owner count, because others can create files with the run's name.
    """
    folder = folder_of_probes(runs_dir, (runs_dir / run_id).stat().st_uid)
    probes = []
    for files in _files_by_node([folder], problems).values():
        probes += _newest([path for path in files if f".{run_id}.a" in path.name], problems)
    return tuple(probe for probe in probes if probe.run_id == run_id)


def _files_by_node(own_dirs: Iterable[Path], problems: list[str]) -> Mapping[str, list[Path]]:
    """Return the records in the users' folders, newest first."""
    by_node: dict[str, list[Path]] = {}
    for own_dir in own_dirs:
        for folder in _listed(own_dir, problems):
            if not folder.name.startswith(".") and not folder.is_symlink() and folder.is_dir():
                by_node.setdefault(folder.name, []).extend(_listed(folder, problems))
    return {
        node: sorted(by_node[node], key=lambda path: path.name, reverse=True)
        for node in sorted(by_node)
    }


def _listed(folder: Path, problems: list[str]) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{printable(str(folder))}: probes of nodes not read: {error.strerror}")
        return []


def _newest(files: Iterable[Path], problems: list[str]) -> list[NodeProbe]:
    """Return the first readable and complete probe in a list, otherwise the first readable one."""
    partial: list[NodeProbe] = []
    for path in files:
        if path.suffix != ".json" or path.name.startswith("."):  # being written
            continue
        try:
            probe = read_probe(path)
        except FileNotFoundError:  # older than the newest ones, and removed meanwhile
            continue
        except _UNREADABLE as error:
            problems.append(f"{printable(str(path))}: not read as a probe: {error}")
            continue
        if probe.measured_unix_s > time.time() + _AHEAD_S:
            problems.append(f"{printable(str(path))}: left out: its moment is still to come")
            continue
        if not probe.is_partial:
            return [probe]
        partial.append(probe)
    return partial[:1]


# Probe measurements as text, for the terminal and the page.


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
