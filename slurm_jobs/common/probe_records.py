"""What a probe keeps of each node: the names and units of its measures, its record, its files.

The stage `probe` writes the records on the nodes; the verb `probe` and reports read them. They lie
in hidden folders beside the runs, because they are of nodes and outlive every run:

```
RUNS_DIR/.probes-UID/
  NODE/0001767225600123.RUN_ID.a0001.json   one probe of one node, written whole
  .scratch/                                 what a probe writes and reads to time the file system
```

A file a probe, not a file a node: two probes at the same time take nothing from each other. A
folder a user, made by that user: where several share a folder of runs, nobody needs to write in
what another one has made. What nodes can do is no secret, so records may be read by whoever may
read the folder of runs; everything else of a run is its owner's alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.common.files import atomic_writer, dump_json, read_json
from slurm_jobs.common.records import known_fields

Unit = Literal["flops/s", "bytes/s", "bits/s", "s", "cores", "loops/s"]

FORMAT = 1
_MOST = 1e20
"""No measure, and no moment, is a larger number: it is damage."""
MAX_KEPT = 5
"""Of a user's probes of one node; older ones are removed."""
_PREFIX = ".probes-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """One number that a probe measures on a node."""

    name: str
    """In `NodeProbe.numbers`, with its unit."""
    label: str
    unit: Unit
    group: str
    """Under which `NodeProbe.reasons` says why it could not be measured."""


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
"""In the order in which they are told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeProbe:
    """What one probe measured on one node."""

    node: str
    run_id: str
    measured_unix_s: float
    cpu: str
    """Model, as the kernel names it."""
    num_cores: int
    """Logical ones, of the whole node."""
    num_asked_cores: int
    """That the job was given there."""
    gpus: tuple[str, ...]
    """Type of each GPU that nvidia-smi showed to the job."""
    numbers: Mapping[str, float]
    """By the names of `MEASURES`; what could not be measured is missing."""
    reasons: Mapping[str, str]
    """Why it could not, by group."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """How the numbers were made, by group: sizes, repeats, partners, file systems, links."""
    is_partial: bool = False
    """It ended before all of the node's own measures were made; the network is none of them."""
    format: int = FORMAT


def probe_from_json(values: Mapping[str, Any]) -> NodeProbe:
    """The probe in a record's JSON values; keys of newer versions are left out.

    Raises:
        TypeError, KeyError: they are no record.
        ValueError: one of another version, or with values that no probe writes.
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
        and all(isinstance(t, str) for t in (probe.node, probe.run_id, probe.cpu, *probe.gpus))
        and all(isinstance(num, int) for num in (probe.num_cores, probe.num_asked_cores))
        and all(map(_is_number, (probe.measured_unix_s, *probe.numbers.values())))
        and all(isinstance(reason, str) for reason in probe.reasons.values())
        and all(
            isinstance(rows, list) and all(isinstance(r, Mapping) for r in rows) for rows in lists
        )
        and all(isinstance(values, Mapping) for values in others)
    )


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < _MOST


@dataclass(frozen=True, slots=True)
class ProbePaths:
    """Where probes of nodes lie, beside the runs in `runs_dir`; they are written by this user."""

    runs_dir: Path

    @property
    def own_dir(self) -> Path:
        """This user's: a folder a node; hidden, and no run."""
        return self.runs_dir / f"{_PREFIX}{os.getuid()}"

    @property
    def scratch_dir(self) -> Path:
        """On the runs' file system, for what a probe writes and reads there."""
        return self.own_dir / ".scratch"

    def node_dir(self, node: str) -> Path:
        """This user's probes of one node."""
        return self.own_dir / node

    def probe(self, probe: NodeProbe, attempt: int) -> Path:
        """One probe; names sort by time."""
        stamp = f"{int(probe.measured_unix_s * 1000):016d}"
        return self.node_dir(probe.node) / f"{stamp}.{probe.run_id}.a{attempt:04d}.json"

    def files_of(self, node: str) -> list[Path]:
        """This user's probes of one node, newest first."""
        return sorted(self.node_dir(node).glob("[0-9]*.json"), reverse=True)


def is_folder_of_probes(path: Path) -> bool:
    """Whether a folder beside runs holds the probes of a user, going by its name."""
    return path.name.startswith(_PREFIX)


def make_node_dir(paths: ProbePaths, node: str) -> Path:
    """The folder for this user's probes of a node, to be read by who may read the folder of runs.

    Raises:
        OSError: it cannot be made.
    """
    shown = _shown_mode(paths)
    folder = paths.node_dir(node)
    for made in (paths.own_dir, folder):
        try:
            made.mkdir(mode=0o700)
        except FileExistsError:
            continue
        # chmod, as the umask of a job leaves others nothing; a set-group-id bit is kept.
        made.chmod(stat.S_IMODE(made.stat().st_mode) & ~0o777 | 0o700 | shown)
    return folder


def _shown_mode(paths: ProbePaths) -> int:
    """What group and others may do in the folder of runs, but writing."""
    return stat.S_IMODE(paths.runs_dir.stat().st_mode) & 0o055


def keep_probe(paths: ProbePaths, probe: NodeProbe, attempt: int) -> Path:
    """Write a probe, or write it again, and remove all but the newest `MAX_KEPT` of its node.

    Raises:
        OSError: the folder cannot be written.
    """
    target = paths.probe(probe, attempt)
    make_node_dir(paths, probe.node)
    with atomic_writer(target) as stream:
        stream.write(dump_json(asdict(probe)).encode())
        os.fchmod(stream.fileno(), 0o600 | _shown_mode(paths) & 0o044)
    for old in paths.files_of(probe.node)[MAX_KEPT:]:
        old.unlink(missing_ok=True)  # another probe of this node may have removed it
    return target


def read_probe(path: Path) -> NodeProbe:
    """One probe.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged; TypeError, KeyError: it is no record.
    """
    return probe_from_json(read_json(path))
