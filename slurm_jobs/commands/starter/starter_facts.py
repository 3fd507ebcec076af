"""Facts that are known before a first spec is written: rooms of the cluster, data, model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_jobs.cluster.limits import ClusterLimits
from slurm_jobs.formats.configs.stages import ChatTemplateName


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionRoom:
    """Partition as one kind of job can use it: the smallest of its fitting nodes."""

    partition: str | None
    """None: this machine, or a cluster that names no partitions."""
    num_nodes: int
    cpus: int
    """CPUs of each node."""
    mem_gb: float
    """Memory of each node; 1 GB is 1024 of Slurm's units."""
    gpu_type: str = ""
    """Name in gres; empty if the type has none, or there are no GPUs."""
    gpus: int = 0
    """GPUs of each node."""
    max_time_min: float | None = None
    """The partition's limit, or that of its QOS."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlace:
    """Cluster or local machine, and where its jobs go."""

    name: str
    """Name of the profile's file."""
    is_slurm: bool
    cpu: PartitionRoom
    gpu: PartitionRoom | None
    """None: there are no GPUs, or none that this user may use."""
    gpu_rooms: tuple[PartitionRoom, ...] = ()
    """All rooms with GPUs, the best first."""
    accounts: tuple[str, ...] = ()
    account: str | None = None
    """Named in the profile; None leaves Slurm's default."""
    node_local_dir: str = "/tmp"  # noqa: S108 - the stage makes a private folder in it
    limits: ClusterLimits = ClusterLimits()  # noqa: RUF009 - frozen
    notes: tuple[str, ...] = ()
    """Information that could not be queried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """List of samples."""

    manifest: str
    """Path, as the spec names it; of several manifests the first."""
    entries: tuple[Mapping[str, Any], ...] = ()
    """Entries of the spec's list of manifests, which have their own columns and folders of images;
    none for a single manifest without a share."""
    image_root: str | None = None
    """Folder of the images, if it is not the manifest's."""
    num_rows: int | None = None
    """None: not counted."""
    num_unmixed_rows: int | None = None
    """Rows of a list of manifests before they are drawn or repeated; None: not counted."""
    is_exact: bool = True
    """True if `num_rows` was counted row by row; otherwise it is the number of lines."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Names of columns by the keys of `columns`: those that a list or another tool's file gives,
    and the classes of a table without other answers."""
    evaluation: str | None = None
    """Manifest of held-out rows, with images in `image_root` too; None: there is none."""
    evaluations: tuple[Mapping[str, Any], ...] = ()
    """The same as entries of a list, if there is a list of manifests."""

    @property
    def written_manifest(self) -> str | list[Mapping[str, Any]]:
        """Return the value of `manifest` in the spec."""
        return list(self.entries) or self.manifest

    @property
    def written_evaluation(self) -> str | list[Mapping[str, Any]] | None:
        """Return the value of `evaluate.manifest` in the spec; None without held-out rows."""
        return list(self.evaluations) or self.evaluation


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """Model to fine-tune."""

    name: str
    """A folder, as the spec names it, or `OWNER/NAME` on the Hugging Face hub."""
    is_on_hub: bool
    weights_gb: float | None = None
    """Size of its files in 16 bits; None if unknown."""
    is_small_vlm: bool = False
    """True for the small models that `train` exports."""
    chat_template: ChatTemplateName | None = None
    """Template to set, because that of the model cannot be trained with."""
