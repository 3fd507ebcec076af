"""What is known before a first spec is written: the cluster's rooms, the data, the model. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.cluster.limits import ClusterLimits


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """One partition, as far as a job of one kind can have it: the smallest of its fitting nodes."""

    partition: str | None
    """None: this machine, or a cluster that names no partitions."""
    num_nodes: int
    cpus: int
    """Of each node."""
    mem_gb: float
    """Of each node; 1 GB is 1024 units of Slurm's."""
    gpu_type: str = ""
    """As gres names it; empty where it has no name, or there are no GPUs."""
    gpus: int = 0
    """Of each node."""
    max_time_min: float | None = None
    """The partition's limit, or that of its QOS."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The cluster, or this machine, and where its jobs go."""

    name: str
    """Of the profile's file."""
    is_slurm: bool
    cpu: Room
    gpu: Room | None
    """None: there are no GPUs, or none that this user may have."""
    gpu_rooms: tuple[Room, ...] = ()
    """All that could be chosen, the best first."""
    accounts: tuple[str, ...] = ()
    account: str | None = None
    """Named in the profile; None leaves Slurm's default."""
    node_local_dir: str = "/tmp"  # noqa: S108 - the stage makes a private folder in it
    limits: ClusterLimits = ClusterLimits()  # noqa: RUF009 - frozen
    notes: tuple[str, ...] = ()
    """What could not be asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """The list of samples."""

    manifest: str
    """Its path, as the spec names it."""
    image_root: str | None = None
    """Where its images lie, if not beside it."""
    num_rows: int | None = None
    """None: nobody counted."""
    is_exact: bool = True
    """Whether `num_rows` was counted row by row; lines may hold less than a row each."""
    evaluation: str | None = None
    """Manifest of held-out rows, whose images are in `image_root` as well; None: there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The model that is fine-tuned."""

    name: str
    """A folder, as the spec names it, or `OWNER/NAME` on the Hugging Face hub."""
    is_on_hub: bool
    weights_gb: float | None = None
    """Of its files in 16 bits; None where nobody can tell."""
    is_small_vlm: bool = False
    """Whether it is one of ours, as `train` exports it."""
