"""Partitions that a stage's jobs may use on a cluster, and the loosest limits there.

Partition, QOS and association limit a job together, and site flags decide which one applies. The
loosest defined limit counts: a job that exceeds it can never run. PURE.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_jobs.cluster.limits import Association, ClusterLimits, Partition, Qos
from slurm_jobs.formats.records.job_resources import JobResources


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
    default = next((p for p in limits.partitions.values() if p.is_default), None)
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
