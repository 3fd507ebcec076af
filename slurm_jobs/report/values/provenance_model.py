"""Provenance of a run and its nodes as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_jobs.formats.node_records.probe_measures import NodeProbe


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmissionFacts:
    """Origin of one submit or resume; empty and None if unknown."""

    number: int
    """Number of its plan, counted from 1."""
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
    """Size of the diff in the run folder, which no report shows."""
    diff_is_cut: bool
    git_problems: tuple[str, ...]
    python: PythonFacts
    """Python of the login node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonFacts:
    """Python with those of its packages that matter to a result."""

    executable: str
    version: str
    packages: Mapping[str, str]
    """Version by name, in the order of `PACKAGES_THAT_MATTER`; the run folder has all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedNode:
    """Records of one node."""

    node_name: str
    cpu: str
    num_cores: int
    """Logical cores of the whole node."""
    memory_bytes: int | None
    gpus: tuple[str, ...]
    """Type of each visible GPU."""
    drivers: tuple[str, ...]
    """Version of the GPU driver; more than one if they differ."""
    gpu_problem: str
    """Reason why nvidia-smi gave no answer; empty if it did, or is missing."""
    system: str
    """Distribution and kernel."""
    modules: tuple[str, ...]
    python: str
    """Fingerprint of the Python that the ranks ran in."""
    host_name: str = ""
    """Host name of the node; it identifies machines under the local scheduler."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualNodes:
    """Equal nodes of a stage."""

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
class RecordedPython:
    """Python with its modules, and the stages whose ranks ran in it."""

    stages: tuple[str, ...]
    python: PythonFacts
    modules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadedRepository:
    """Model or data set that a `download` stage provided."""

    stage: str
    folder: str
    """Its path in the hub's addresses: `OWNER/NAME`, or `datasets/OWNER/NAME`."""
    commit: str
    """Empty if a mirror did not have it."""
    num_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProvenanceNumbers:
    """Origin of the run, and its machines."""

    submissions: tuple[SubmissionFacts, ...]
    """Oldest first; empty if an older version made the run."""
    nodes: tuple[EqualNodes, ...]
    pythons: tuple[RecordedPython, ...]
    probes: tuple[NodeProbe, ...] = ()
    """Newest probe of each node that an attempt had; empty without probes."""
    downloads: tuple[DownloadedRepository, ...] = ()


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
