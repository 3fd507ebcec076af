"""Limits and hardware of a cluster: arrays, partitions, node kinds, QOS, associations. PURE.

A limit of None means that there is none, or that Slurm could not be queried (see `problems`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from slurm_jobs.cluster.mig import is_slice
from slurm_jobs.shared.records import JobResources
from slurm_jobs.spec.durations import parse_minutes


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

    def default_partition(self) -> Partition | None:
        """Return the partition of jobs without a `partition` option."""
        return next((p for p in self.partitions.values() if p.is_default), None)

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


# Partitions that a stage's jobs may use on a cluster, and the loosest limits there.
#
# Partition, QOS and association limit a job together, and site flags decide which one applies. The
# loosest defined limit counts: a job that exceeds it can never run.


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Partitions that a job may run in, and the limits that apply to it."""

    partitions: tuple[Partition, ...]
    """Known partitions; several if the spec names several or a plugin chooses, else at most one."""
    unknown_partitions: tuple[str, ...]
    """Partitions that the spec names and the cluster lacks."""
    account: str | None
    """Account from the spec."""
    qos_name: str | None
    """QOS from the spec."""
    associations: tuple[Association, ...]
    qos: tuple[Qos, ...]

    @property
    def max_submit(self) -> int | None:
        """Jobs and array elements that the user may have at once; None if unlimited or unknown."""
        of_associations = [entry.max_submit for entry in self.associations]
        known = [
            n for n in [*of_associations, *(qos.max_submit for qos in self.qos)] if n is not None
        ]
        return max(known, default=None)

    @property
    def max_time_min(self) -> float | None:
        """Longest time limit; None if unlimited or unknown in one of the partitions."""
        if not self.partitions or any(p.max_time_min is None for p in self.partitions):
            return None
        of_partitions = [p.max_time_min for p in self.partitions]
        of_qos = [qos.max_wall_min for qos in self.qos]
        return max(n for n in [*of_partitions, *of_qos] if n is not None)


def place(resources: JobResources, limits: ClusterLimits) -> Placement:
    """Return the placement of jobs that request `resources`."""
    names = _option(resources, "partition", limits)
    listed = names.split(",") if names else []
    default = limits.default_partition()
    partitions = [limits.partitions[name] for name in listed if name in limits.partitions]
    if not listed and limits.is_routed:
        partitions = list(limits.partitions.values())
    elif not listed and default is not None:
        partitions = [default]
    account, qos_name = _option(resources, "account", limits), _option(resources, "qos", limits)
    associations = limits.associations_with(account)
    places: list[Partition | None] = list(partitions) or [None]
    qos = {q.name: q for p in places for q in limits.qos_of(p, qos_name, associations)}
    return Placement(
        partitions=tuple(partitions),
        unknown_partitions=tuple(n for n in listed if n not in limits.partitions)
        if limits.partitions
        else (),
        account=account,
        qos_name=qos_name,
        associations=associations,
        qos=tuple(qos.values()),
    )


def submit_limit(all_resources: Iterable[JobResources], limits: ClusterLimits) -> int | None:
    """Return how many jobs and array elements the user may have at once; None for no limit."""
    each = [place(resources, limits).max_submit for resources in all_resources]
    known = [limit for limit in each if limit is not None]
    return max(known) if known and len(known) == len(each) else None


def job_room(all_resources: Iterable[JobResources], limits: ClusterLimits) -> int | None:
    """Return how many more jobs the user may queue now, if known; None for no limit."""
    bounds = (submit_limit(all_resources, limits), limits.max_jobs)
    most = min((bound for bound in bounds if bound is not None), default=None)
    return None if most is None else max(1, most - limits.num_queued)


def _option(resources: JobResources, name: str, limits: ClusterLimits) -> str | None:
    value = resources.slurm.get(name, limits.shell_defaults.get(name))
    return None if value is None else str(value)


# Parsers for the output of scontrol, sinfo and sacctmgr.


SINFO_FORMAT = "%R|%D|%c|%m|%G|%f"
"""Partition, number of nodes, CPUs, memory in MB, gres and features of each kind of node."""
ASSOCIATION_FIELDS = (
    *("Account", "Partition", "QOS", "DefaultQOS"),
    *("MaxWall", "MaxSubmitJobs", "GrpSubmitJobs"),
)
QOS_FIELDS = ("Name", "MaxWall", "MaxSubmitJobsPU", "MaxSubmitJobsPA", "MaxTRES")

_SETTING = re.compile(r"^(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_GPU = re.compile(r"gpu(?::([^:,()]+))?:(\d+)(?:\(.*)?")


def parse_config(text: str) -> dict[str, str]:
    """Parse the settings that `scontrol show config` prints, by name."""
    return dict(_SETTING.findall(text))


def parse_partitions(text: str, kinds: Mapping[str, tuple[NodeKind, ...]]) -> dict[str, Partition]:
    """Parse the partitions that `scontrol show partition -o` prints, each with its node kinds."""
    partitions = {}
    for line in text.splitlines():
        values = dict(word.partition("=")[::2] for word in line.split())
        name = values.get("PartitionName", "")
        if not name:
            continue
        partitions[name] = Partition(
            name=name,
            is_default=values.get("Default") == "YES",
            max_time_min=parse_minutes(values.get("MaxTime", "")),
            max_nodes=_count(values.get("MaxNodes", "")),
            qos=_known(values.get("QoS", "")),
            kinds=kinds.get(name, ()),
            is_up=values.get("State", "UP") == "UP" and values.get("RootOnly") != "YES",
            allow_groups=_list(values.get("AllowGroups", "")),
            allow_accounts=_list(values.get("AllowAccounts", "")),
        )
    return partitions


def parse_kinds(text: str) -> dict[str, tuple[NodeKind, ...]]:
    """Parse node kinds by partition, from sinfo with `SINFO_FORMAT`."""
    kinds: dict[str, tuple[NodeKind, ...]] = {}
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) != 6:
            continue
        name, num_nodes, cpus, mem_mb, gres, features = fields
        kind = NodeKind(
            num_nodes=_count(num_nodes) or 0,
            cpus=_count(cpus) or 0,
            mem_mb=_count(mem_mb) or 0,
            gpus=parse_gpus(gres),
            features=frozenset(_list(features) or ()),
        )
        kinds[name] = (*kinds.get(name, ()), kind)
    return kinds


def parse_gpus(gres: str) -> dict[str, int]:
    """Parse GPU counts by type, such as `gpu:a100:4(S:0-1),gpu:2,nvme:1`."""
    gpus: dict[str, int] = {}
    for word in re.findall(r"(?:[^,(]|\([^)]*\)?)+", gres):
        match = _GPU.fullmatch(word)
        if match is not None:
            gpus[match[1] or ""] = gpus.get(match[1] or "", 0) + int(match[2])
    return gpus


def parse_qos(text: str) -> dict[str, Qos]:
    """Parse QOS by name, from `sacctmgr -nP show qos` with `QOS_FIELDS`."""
    by_name = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != len(QOS_FIELDS):
            continue
        name, wall, per_user, per_account, tres = fields
        limits = dict(part.partition("=")[::2] for part in tres.split(",") if part)
        by_name[name] = Qos(
            name=name,
            max_wall_min=parse_minutes(wall),
            max_submit=_least(_count(per_user), _count(per_account)),
            max_nodes=_count(limits.get("node", "")),
            max_gpus=_count(limits.get("gres/gpu", "")),
        )
    return by_name


def parse_associations(text: str) -> tuple[Association, ...]:
    """Parse the rows of `sacctmgr -nP show assoc` with `ASSOCIATION_FIELDS`."""
    associations = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != len(ASSOCIATION_FIELDS):
            continue
        account, partition, qos, default_qos, wall, submit, group_submit = fields
        associations.append(
            Association(
                account=account,
                partition=partition or None,
                qos=tuple(name for name in qos.split(",") if name),
                default_qos=default_qos or None,
                max_wall_min=parse_minutes(wall),
                max_submit=_least(_count(submit), _count(group_submit)),
            )
        )
    return tuple(associations)


def _count(text: str) -> int | None:
    """Parse a number; sinfo appends + to the smallest of several values."""
    digits = text.rstrip("+")
    return int(digits) if digits.isdecimal() else None


def _known(text: str) -> str | None:
    return None if text in {"", "N/A", "(null)"} else text


def _list(text: str) -> tuple[str, ...] | None:
    """Parse names separated by commas; None for all."""
    return None if text in {"", "ALL", "(null)"} else tuple(text.split(","))


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
