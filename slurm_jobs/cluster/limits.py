"""Limits and hardware of a cluster: arrays, partitions, node kinds, QOS, associations. PURE.

A limit of None means that there is none, or that Slurm could not be queried (see `problems`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from slurm_jobs.cluster.mig import is_slice


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeKind:
    """Group of identical nodes in a partition."""

    num_nodes: int
    cpus: int
    mem_mb: int
    """Memory that Slurm may give to jobs, in units of 1,048,576 bytes."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """GPUs of each node, by type; the type is empty where the site names none."""
    features: frozenset[str] = frozenset()

    def num_gpus(self, gpu_type: str | None) -> int:
        """Return the number of GPUs of one type on each node; of all types for None.

        A type may be a gres type or a feature of the node. A slice of a card counts as a GPU.
        """
        return sum(self.gpus[name] for name in self._types(gpu_type))

    def num_cards(self, gpu_type: str | None) -> int:
        """Return the number of GPUs like `num_gpus`, without slices of cards."""
        return sum(self.gpus[name] for name in self._types(gpu_type) if not is_slice(name))

    def _types(self, gpu_type: str | None) -> list[str]:
        is_any = gpu_type is None or gpu_type in self.features
        return [name for name in self.gpus if is_any or name == gpu_type]


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """One partition."""

    name: str
    is_default: bool = False
    max_time_min: float | None = None
    max_nodes: int | None = None
    qos: str | None = None
    """QOS of the partition, whose limits apply to all jobs in it."""
    kinds: tuple[NodeKind, ...] = ()
    is_up: bool = True
    """True if the partition starts jobs now."""
    allow_groups: tuple[str, ...] | None = None
    """Unix groups that may use the partition; None for all."""
    allow_accounts: tuple[str, ...] | None = None
    """Accounts that may use the partition; None for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Qos:
    """Limits of one QOS."""

    name: str
    max_wall_min: float | None = None
    max_submit: int | None = None
    """Jobs and array elements that one user may have queued and running at once."""
    max_nodes: int | None = None
    """Largest number of nodes of one job."""
    max_gpus: int | None = None
    """Largest number of GPUs of one job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Association:
    """Permissions of a user under one account."""

    account: str
    partition: str | None = None
    """Partition of the association; None for all partitions."""
    qos: tuple[str, ...] = ()
    default_qos: str | None = None
    max_wall_min: float | None = None
    max_submit: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterLimits:
    """Limits of one cluster, as they apply to one user."""

    cluster_name: str | None = None
    """Name that Slurm gives the cluster."""
    max_array_size: int | None = None
    """Largest index of an array, plus one."""
    max_jobs: int | None = None
    """Jobs and array elements of all users that the controller holds at once (`MaxJobCount`).
    Beyond it, sbatch retries for minutes and then fails."""
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    qos: Mapping[str, Qos] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()
    """Associations of the user; empty where Slurm does not enforce them."""
    enforces_qos: bool = False
    """True if Slurm refuses a QOS that no association names."""
    tmp_dir: str | None = None
    """`TmpFS`: the folder that the site uses as the local disk of each node."""
    is_routed: bool = False
    """True if a plugin of the site chooses partitions for jobs that name none."""
    shell_defaults: Mapping[str, str] = field(default_factory=dict)
    """Options, by name, that shell variables set for jobs whose spec leaves them open."""
    num_queued: int = 0
    """The user's own jobs and array elements that are queued or running."""
    problems: tuple[str, ...] = ()
    """Queries that failed, with the reason."""
    unreachable: str = ""
    """Reason why the controller could not be reached; empty if it answered any query."""

    def associations_with(self, account: str | None) -> tuple[Association, ...]:
        """Return the user's associations with an account; all for None.

        There is one per partition or cluster.
        """
        if account is None:
            return self.associations
        return tuple(a for a in self.associations if a.account.lower() == account.lower())

    def qos_of(
        self, partition: Partition | None, asked: str | None, associations: Iterable[Association]
    ) -> Iterator[Qos]:
        """Yield each QOS whose limits may apply to a job: the partition's and the job's."""
        names = {asked} if asked is not None else {entry.default_qos for entry in associations}
        for name in (partition.qos if partition is not None else None, *names):
            if name is not None and name in self.qos:
                yield self.qos[name]


NO_LIMITS = ClusterLimits()
"""Limits of this machine, and of a cluster that was not queried."""
