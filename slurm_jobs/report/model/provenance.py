"""What a report says of where a run came from and what it ran on, as plain values. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_jobs.common.probe_records import NodeProbe


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmissionFacts:
    """What one submit or resume was made from; empty and None where nobody could say."""

    number: int
    """Of its plan, counted from 1."""
    recorded_unix_s: float
    command: tuple[str, ...]
    host: str
    slurm_jobs_version: str
    slurm_version: str
    """Empty without Slurm."""
    commit: str | None
    branch: str | None
    remotes: Mapping[str, str]
    is_dirty: bool | None
    num_changed: int
    num_untracked: int
    diff_bytes: int
    """Of the diff in the run folder, which no report shows."""
    diff_is_cut: bool
    git_problems: tuple[str, ...]
    python: PythonFacts
    """Of the login node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonFacts:
    """A Python and those of its packages that matter to a result."""

    executable: str
    version: str
    packages: Mapping[str, str]
    """Version by name, in the order of `PACKAGES_THAT_MATTER`; the run folder has all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What was noted of one node."""

    node_name: str
    cpu: str
    num_cores: int
    """Logical ones, of the whole node."""
    memory_bytes: int | None
    gpus: tuple[str, ...]
    """Type of each GPU that was to be seen."""
    drivers: tuple[str, ...]
    """Version of the GPU driver; more than one if the node is odd."""
    gpu_problem: str
    """Why nvidia-smi did not say; empty where it did, or is not there."""
    system: str
    """Distribution and kernel."""
    modules: tuple[str, ...]
    python: str
    """Fingerprint of the Python that the ranks ran in."""
    host_name: str = ""
    """What the node calls itself; with the local scheduler that tells machines apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeKind:
    """Nodes of a stage that are alike."""

    stage: str
    node_names: tuple[str, ...]
    cpu: str
    num_cores: int
    memory_bytes: int | None
    gpus: tuple[tuple[str, int], ...]
    """Type, and how many of it each node has."""
    drivers: tuple[str, ...]
    gpu_problem: str
    system: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePython:
    """A Python with its modules, and the stages whose ranks ran in it."""

    stages: tuple[str, ...]
    python: PythonFacts
    modules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProvenanceNumbers:
    """Where the run came from, and what it ran on."""

    submissions: tuple[SubmissionFacts, ...]
    """Oldest first; none if an older version made the run."""
    nodes: tuple[NodeKind, ...]
    pythons: tuple[StagePython, ...]
    probes: tuple[NodeProbe, ...] = ()
    """The newest of each node that an attempt had; empty if none was ever probed."""


PACKAGES_THAT_MATTER = (
    "slurm-jobs",
    "torch",
    "torchvision",
    "transformers",
    "accelerate",
    "peft",
    "bitsandbytes",
    "flash-attn",
    "xformers",
    "deepspeed",
    "triton",
    "nvidia-nccl-cu11",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "tokenizers",
    "safetensors",
    "datasets",
    "webdataset",
    "pillow",
    "pyarrow",
    "numpy",
    "submitit",
)
