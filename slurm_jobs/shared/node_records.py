"""Records of `doctor` and `probe`, as nodes write them."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.shared.files import END_OF_TIME_S, atomic_writer, dump_json
from slurm_jobs.shared.records import record_from_json
from slurm_jobs.shared.regular_files import rest_of

# Results of `slurm-jobs doctor` for a node, and the files that both sides exchange.
#
# The stage on the nodes writes them; the verb on the login node reads and judges them.


def facts_name(rank: int) -> str:
    """Return the file in the stage's output folder with the results of rank `rank`."""
    return f"node-{rank:05d}.json"


def hello_name(rank: int) -> str:
    """Return the file by which a rank requests the login node's time."""
    return f"hello-{rank:05d}.json"


def answer_name(rank: int) -> str:
    """Return the file with the login node's answer."""
    return f"answer-{rank:05d}.json"


SIGNAL_NAME = "signal.json"
"""File with the login node's signal to the job, or the reason why it failed."""


def drill_name(rank: int) -> str:
    """Return the file with the counter of a drill's rank and its outcome."""
    return f"counter-{rank:05d}.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderFacts:
    """Folder as one machine sees it."""

    path: str
    kind: str = ""
    """Type of the file system (`ext4`, `nfs4`); empty if unknown."""
    source: str = ""
    free_bytes: int | None = None
    total_bytes: int | None = None
    problem: str = ""
    """Reason why the folder is not writable; empty if it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramFacts:
    """Program that a job may need."""

    path: str = ""
    """Path of the program; empty if it is not on PATH."""
    problem: str = ""
    """Reason why it gave no answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CardFacts:
    """GPU that torch sees."""

    name: str
    capability: str
    problem: str = ""
    """Reason why this build of torch cannot compute on it, with the remedy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchFacts:
    """PyTorch in the stage's Python, queried in a separate process."""

    version: str = ""
    cuda: str = ""
    """CUDA version that it was built for; empty for a build without CUDA."""
    nccl: str = ""
    cards: tuple[CardFacts, ...] = ()
    cuda_problem: str = ""
    """Reason why it sees no GPU."""
    import_s: float | None = None
    problem: str = ""
    """Reason why the query failed: missing, crashed, took too long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockFacts:
    """Bounds of another machine's clock, in seconds ahead of this one's."""

    least_s: float
    most_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AllReduceFacts:
    """All-reduce over gloo between the nodes."""

    interface: str = ""
    """Interface that GLOO_SOCKET_IFNAME names; empty if it is not set."""
    seconds: float | None = None
    """Time for one number; None if it failed."""
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """Facts of one node."""

    node: str
    rank: int
    host: str
    python: str
    executable: str
    packages: Mapping[str, str]
    torch: TorchFacts
    gpus: tuple[str, ...]
    """GPU names from nvidia-smi."""
    gpus_reason: str
    driver: str
    """Version of NVIDIA's driver; empty without one."""
    local: FolderFacts
    shared: FolderFacts
    programs: Mapping[str, ProgramFacts]
    limits: Mapping[str, int | None]
    """`open_files`, `locked_bytes`, `shm_bytes`, `memory_bytes`; None for no limit."""
    cores: float | None
    """Cores that control groups leave to the job; None for no limit."""
    num_cores: int
    """Cores that the process may run on."""
    has_infiniband: bool
    """True if it has an InfiniBand card, for which memory must be locked."""
    environment: Mapping[str, str]
    """Variables that control NCCL and Hugging Face."""
    hub_s: float | None
    """Time that the model hub took to answer; None if it did not."""
    hub_problem: str
    login: ClockFacts | None
    """Clock of the login node; None if it did not answer in time."""
    login_reason: str
    login_file_s: float | None
    """Time until the login node saw a file and its answer was seen here: both ways together."""
    first: ClockFacts | None
    """Clock of the first node; None on it, and if it could not be reached."""
    first_reason: str
    file_s: float | None
    """Time until a file of the first node was seen here."""
    signalled: bool | None
    """True if SIGUSR2 came; None if it was not sent."""
    signal_reason: str = ""
    all_reduce: AllReduceFacts | None = None
    """Result of the all-reduce; None on a job of one node."""
    gpu_numa_nodes: tuple[int, ...] = ()
    """NUMA nodes of the node's GPUs, in the order of their PCI addresses; -1 if unknown."""


def node_from_json(values: Mapping[str, Any]) -> NodeFacts:
    """Parse the facts in a file's JSON values.

    Raises:
        TypeError, KeyError: they are invalid.
    """
    return record_from_json(NodeFacts, values)


# Record of a node's probe: names and units of its measures.


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


# Files of the probes' measurements.
#
# The stage `probe` writes the records on the nodes; the verb `probe` and reports read them. They
# are stored in hidden folders next to the runs, because they describe nodes and outlive every run:
#
# ```
# RUNS_DIR/.probes-UID/
#   NODE/0001767225600123.RUN_ID.a0001.json   one probe of one node, written atomically
#   .scratch/                                 files for timing the file system
# ```
#
# Each probe has its own file, so that two concurrent probes of a node do not conflict. Each user
# has their own folder, so that users who share a folder of runs need no write access to each
# other's. The speed of nodes is no secret, so records are readable by everyone who can read the
# folder of runs; everything else of a run is private.


MAX_KEPT = 5
"""Limit for a user's probes of one node; older ones are removed."""
_PREFIX = ".probes-"
_NAME = re.compile(r"\d{16}\..+\.a\d{4}\.json")
_MOST_BYTES = 1 << 20
"""Size limit of a record, which needs a few thousand bytes."""


@dataclass(frozen=True, slots=True)
class ProbePaths:
    """Locations of node probes, next to the runs in `runs_dir`, for this user's writes."""

    runs_dir: Path

    @property
    def own_dir(self) -> Path:
        """Return this user's folder of probes, with a folder for each node; hidden, and no run."""
        return folder_of_probes(self.runs_dir, os.getuid())

    @property
    def scratch_dir(self) -> Path:
        """Return the folder on the runs' file system in which a probe writes and reads."""
        return self.own_dir / ".scratch"

    def node_dir(self, node: str) -> Path:
        """Return the folder of this user's probes of one node."""
        return self.own_dir / node

    def probe(self, probe: NodeProbe, attempt: int) -> Path:
        """Return the file of one probe; names sort by time."""
        stamp = f"{int(probe.measured_unix_s * 1000):016d}"
        return self.node_dir(probe.node) / f"{stamp}.{probe.run_id}.a{attempt:04d}.json"

    def files_of(self, node: str) -> list[Path]:
        """Return this user's probes of one node, newest first; skip everything else."""
        files = (path for path in self.node_dir(node).glob("*.json") if _NAME.fullmatch(path.name))
        return sorted((p for p in files if stat.S_ISREG(p.lstat().st_mode)), reverse=True)


def folder_of_probes(runs_dir: Path, uid: int) -> Path:
    """Return the folder of a user's probes."""
    return runs_dir / f"{_PREFIX}{uid}"


def is_folder_of_probes(path: Path) -> bool:
    """Check whether a folder next to runs holds the probes of a user, by its name."""
    return path.name.startswith(_PREFIX)


def make_node_dir(paths: ProbePaths, node: str) -> Path:
    """Create the folder for this user's probes of a node, as readable as the folder of runs.

    If several users may write next to the runs, one of them could have created a link: files would
    be written and removed elsewhere.

    Raises:
        OSError: it cannot be created, or is a link, no folder, or another user's.
    """
    shown = _shown_mode(paths)
    for folder in (paths.own_dir, paths.node_dir(node)):
        is_new = True
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            is_new = False
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except NotADirectoryError as error:  # the error of a link, too
            what = "the folder of probes is a link, or not a folder: have it removed"
            raise NotADirectoryError(error.errno, what, str(folder)) from error
        try:
            status = os.fstat(opened)
            if status.st_uid != os.getuid():
                what = f"it is user {status.st_uid}'s: have it removed, or use another runs_dir"
                raise PermissionError(errno.EPERM, what, str(folder))
            if is_new:
                # The umask of a job removes all rights of others; a set-group-id bit is kept.
                os.fchmod(opened, stat.S_IMODE(status.st_mode) & ~0o777 | 0o700 | shown)
        finally:
            os.close(opened)
    return folder


def _shown_mode(paths: ProbePaths) -> int:
    """Return the rights of group and others on the folder of runs, without writing."""
    return stat.S_IMODE(paths.runs_dir.stat().st_mode) & 0o055


def keep_probe(paths: ProbePaths, probe: NodeProbe, attempt: int) -> Path:
    """Write or rewrite a probe, and remove all but the newest `MAX_KEPT` of its node.

    Raises:
        OSError: the folder cannot be written.
    """
    target = paths.probe(probe, attempt)
    make_node_dir(paths, probe.node)
    with atomic_writer(target) as stream:
        stream.write(dump_json(asdict(probe)).encode())
        os.fchmod(stream.fileno(), 0o600 | _shown_mode(paths) & 0o044)
    others = [path for path in paths.files_of(probe.node) if path != target]
    for old in others[MAX_KEPT - 1 :]:  # a clock that was ahead has made names that sort first
        old.unlink(missing_ok=True)  # another probe of this node may have removed it
    return target


def read_probe(path: Path) -> NodeProbe:
    """Read one probe, which may be another user's, so its content is not trusted.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, no plain file of the folder's owner, or of another node than its
            folder.
        TypeError, KeyError: it is not a record.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)  # a pipe must not block
    with os.fdopen(opened, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            message = "it is not a plain file of a record's size"
            raise ValueError(message)
        if path.parents[1].name != f"{_PREFIX}{status.st_uid}":
            message = f"it is user {status.st_uid}'s, in the folder of another one"
            raise ValueError(message)
        content = rest_of(stream, path, most_bytes=_MOST_BYTES)  # it may grow meanwhile
    try:
        probe = probe_from_json(json.loads(content))
    except (RecursionError, OverflowError) as error:
        message = f"it is damaged ({type(error).__name__})"
        raise ValueError(message) from error
    if probe.node != path.parent.name:
        message = f"it is of node {probe.node!r}, but is in the folder of another"
        raise ValueError(message)
    return probe
