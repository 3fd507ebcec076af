"""What a cluster allows and has: arrays, partitions, kinds of nodes, QOS, associations. PURE.

Every limit may be None: there is none, or nobody could be asked (then `problems` says so).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeKind:
    """Nodes of a partition that are alike."""

    num_nodes: int
    cpus: int
    mem_mb: int
    """That Slurm may give to jobs, in units of 1,048,576 bytes."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Of each node, by type; the type is empty where the site names none."""
    features: frozenset[str] = frozenset()

    def num_gpus(self, gpu_type: str | None) -> int:
        """GPUs of one type on each node; of all types for None.

        A type may be one of gres, or a feature of the node.
        """
        if gpu_type is None or gpu_type in self.features:
            return sum(self.gpus.values())
        return self.gpus.get(gpu_type, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """One partition."""

    name: str
    is_default: bool = False
    max_time_min: float | None = None
    max_nodes: int | None = None
    qos: str | None = None
    """Its own QOS, whose limits hold for all jobs in it."""
    kinds: tuple[NodeKind, ...] = ()
    is_up: bool = True
    """Whether jobs are started in it now."""
    allow_groups: tuple[str, ...] | None = None
    """Unix groups whose members alone may use it; None for all."""
    allow_accounts: tuple[str, ...] | None = None
    """Accounts that alone may use it; None for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Qos:
    """Limits of one QOS."""

    name: str
    max_wall_min: float | None = None
    max_submit: int | None = None
    """Jobs and array elements that one user may have queued and running at once."""
    max_nodes: int | None = None
    """Of one job."""
    max_gpus: int | None = None
    """Of one job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Association:
    """What a user may do under one account."""

    account: str
    partition: str | None = None
    """None: in all."""
    qos: tuple[str, ...] = ()
    default_qos: str | None = None
    max_wall_min: float | None = None
    max_submit: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterLimits:
    """One cluster, as one of its users sees it."""

    cluster_name: str | None = None
    """Slurm's own word for it."""
    max_array_size: int | None = None
    """Largest index of an array, plus one."""
    max_jobs: int | None = None
    """Jobs and array elements of all users that the controller holds at once (`MaxJobCount`).
    Beyond it sbatch tries again and again for minutes, and is refused in the end."""
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    qos: Mapping[str, Qos] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()
    """Empty where Slurm does not enforce them."""
    enforces_qos: bool = False
    """Whether a QOS that no association names is refused."""
    tmp_dir: str | None = None
    """`TmpFS`: the folder of each node that the site takes for its local disk."""
    is_routed: bool = False
    """Whether a plugin of the site's chooses partitions for jobs that name none."""
    shell_defaults: Mapping[str, str] = field(default_factory=dict)
    """Options that variables of the shell give to jobs whose spec leaves them open, by name."""
    num_queued: int = 0
    """The user's own jobs and array elements that are queued or running."""
    problems: tuple[str, ...] = ()
    """What could not be asked, and why."""
    unreachable: str = ""
    """Why the controller could not be reached; empty where it answered anything."""

    def default_partition(self) -> Partition | None:
        """Where a job without `partition` goes."""
        return next((p for p in self.partitions.values() if p.is_default), None)

    def associations_with(self, account: str | None) -> tuple[Association, ...]:
        """The user's associations with an account (a row a partition or cluster); all for None."""
        if account is None:
            return self.associations
        return tuple(a for a in self.associations if a.account.lower() == account.lower())

    def qos_of(
        self, partition: Partition | None, asked: str | None, own: Iterable[Association]
    ) -> Iterator[Qos]:
        """The QOS whose limits a job may be under: the partition's, and its own."""
        names = {asked} if asked is not None else {entry.default_qos for entry in own}
        for name in (partition.qos if partition is not None else None, *names):
            if name is not None and name in self.qos:
                yield self.qos[name]


NO_LIMITS = ClusterLimits()
"""Of this machine, and where nobody was asked."""
