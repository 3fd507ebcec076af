"""What `slurm-jobs doctor` finds of a node, and the files over which both ends talk. PURE.

The stage on the nodes writes them, and the verb on the login node reads and judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.records import known_fields


def facts_name(rank: int) -> str:
    """Of the file in the stage's output folder that holds what rank `rank` found."""
    return f"node-{rank:05d}.json"


def hello_name(rank: int) -> str:
    """Of the file by which a rank asks the login node for its time."""
    return f"hello-{rank:05d}.json"


def answer_name(rank: int) -> str:
    """Of the login node's answer."""
    return f"answer-{rank:05d}.json"


SIGNAL_NAME = "signal.json"
"""Says that the login node has had the job signalled, or why it could not."""


def drill_name(rank: int) -> str:
    """Of the file that holds the counter of a drill's rank, and what became of it."""
    return f"counter-{rank:05d}.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderFacts:
    """A folder as one machine sees it."""

    path: str
    kind: str = ""
    """Of its file system (`ext4`, `nfs4`); empty where the machine does not say."""
    source: str = ""
    free_bytes: int | None = None
    total_bytes: int | None = None
    problem: str = ""
    """Why nothing can be written there; empty if it can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramFacts:
    """A program that a job may need."""

    path: str = ""
    """Empty where PATH leads to none."""
    problem: str = ""
    """Why it gave no answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CardFacts:
    """One GPU that torch sees."""

    name: str
    capability: str
    problem: str = ""
    """Why this build of torch computes nothing on it, with the remedy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchFacts:
    """PyTorch in the stage's Python, asked in a process of its own."""

    version: str = ""
    cuda: str = ""
    """That it was built for; empty for a build without."""
    nccl: str = ""
    cards: tuple[CardFacts, ...] = ()
    cuda_problem: str = ""
    """Why it sees no card."""
    import_s: float | None = None
    problem: str = ""
    """Why it could not be asked: missing, crashed, took too long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockFacts:
    """Between which two numbers another machine's clock is ahead of this one's, in seconds."""

    least_s: float
    most_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AllReduceFacts:
    """An all-reduce over gloo between the nodes."""

    interface: str = ""
    """That GLOO_SOCKET_IFNAME names; empty if it is not set."""
    seconds: float | None = None
    """Of one number; None if it failed."""
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """One node."""

    node: str
    rank: int
    host: str
    python: str
    """Its version."""
    executable: str
    packages: Mapping[str, str]
    """Version by name."""
    torch: TorchFacts
    gpus: tuple[str, ...]
    """As nvidia-smi names them."""
    gpus_reason: str
    """Why there are none."""
    driver: str
    """Version of NVIDIA's; empty without one."""
    local: FolderFacts
    shared: FolderFacts
    programs: Mapping[str, ProgramFacts]
    limits: Mapping[str, int | None]
    """`open_files`, `locked_bytes`, `shm_bytes`, `memory_bytes`; None: no limit."""
    cores: float | None
    """That control groups leave the job; None: no limit of theirs."""
    num_cores: int
    """That it may run on."""
    has_infiniband: bool
    """Whether it has a card for which memory must be locked."""
    environment: Mapping[str, str]
    """Variables that steer NCCL and Hugging Face."""
    hub_s: float | None
    """How long the model hub took to answer; None where it did not."""
    hub_problem: str
    login: ClockFacts | None
    """The login node's clock; None where it did not answer in time."""
    login_reason: str
    login_file_s: float | None
    """For a file to be seen there, and its answer here: both ways together."""
    first: ClockFacts | None
    """The clock of the first node; None on it, and where it could not be reached."""
    first_reason: str
    file_s: float | None
    """Until a file was seen here that the first node had written."""
    signalled: bool | None
    """Whether SIGUSR2 came; None where nobody sent it."""
    signal_reason: str = ""
    all_reduce: AllReduceFacts | None = None
    """None on a job of one node."""
    gpu_numa_nodes: tuple[int, ...] = ()
    """Of all GPUs of the node, in the order of their PCI addresses; -1: not known."""


def node_from_json(values: Mapping[str, Any]) -> NodeFacts:
    """The facts in a file's JSON values.

    Raises:
        TypeError, KeyError: they are none.
    """
    known = known_fields(NodeFacts, values)
    torch = known_fields(TorchFacts, known["torch"])
    torch["cards"] = tuple(CardFacts(**card) for card in torch.get("cards", ()))
    clocks = {
        name: None if known[name] is None else ClockFacts(**known[name])
        for name in ("login", "first")
    }
    reduced = known.get("all_reduce")
    return NodeFacts(
        **{
            **known,
            **clocks,
            "all_reduce": None if reduced is None else AllReduceFacts(**reduced),
            "torch": TorchFacts(**torch),
            "gpus": tuple(known["gpus"]),
            "gpu_numa_nodes": tuple(known.get("gpu_numa_nodes", ())),
            "local": FolderFacts(**known["local"]),
            "shared": FolderFacts(**known["shared"]),
            "programs": {name: ProgramFacts(**p) for name, p in known["programs"].items()},
        }
    )
