"""Results of `slurm-jobs doctor` for a node, and the files that both sides exchange.

The stage on the nodes writes them; the verb on the login node reads and judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.formats.records.record_json import record_from_json


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
