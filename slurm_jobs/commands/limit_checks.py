"""Checks of a plan against cluster limits, before anything is queued. PURE.

Slurm accepts many impossible jobs and leaves them pending for ever. Nodes that are down count as
available, and an unknown limit counts as no limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.cluster.allowed_partitions import Placement, place, submit_limit
from slurm_jobs.cluster.limits import ClusterLimits, Partition
from slurm_jobs.cluster.mig import is_slice
from slurm_jobs.formats.configs.command_stages import TUNE_RUN
from slurm_jobs.formats.records.job_resources import JobResources
from slurm_jobs.plan.planned import Plan, PlannedJob

_TRAININGS = frozenset({"train", TUNE_RUN})
"""Stages whose ranks train one model together."""


@dataclass(frozen=True, slots=True)
class LimitProblem:
    """One limit that a stage breaks."""

    path: tuple[str, ...]
    """Path in the spec: `("stages", "train", "resources", "timeout_min")`."""
    message: str


def _problem(job: PlannedJob, key: str, message: str) -> LimitProblem:
    """Return a problem at `key` (`resources.timeout_min`) of the job's stage."""
    return LimitProblem(("stages", job.stage, *key.split(".")), message)


def limit_problems(plan: Plan, limits: ClusterLimits) -> list[LimitProblem]:
    """Return every problem of the plan's jobs that would keep them from ever running."""
    problems: dict[LimitProblem, None] = {}
    for job in plan.jobs:
        placement = place(job.resources, limits)
        problems |= dict.fromkeys(_place_problems(job, placement, limits))
        problems |= dict.fromkeys(_time_problems(plan, job, placement))
        # Of several partitions, one that could run the job is enough.
        if placement.partitions and all(p.kinds for p in placement.partitions):
            trains = plan.stage(job.stage).run in _TRAININGS
            answers = [
                list(_partition_problems(job, p, placement, trains=trains))
                for p in placement.partitions
            ]
            problems |= dict.fromkeys(answers[0] if all(answers) else ())
    problems |= dict.fromkeys(_number_problems(plan, limits))
    return list(problems)


def _place_problems(
    job: PlannedJob, placement: Placement, limits: ClusterLimits
) -> Iterator[LimitProblem]:
    """Check that partition, account and QOS exist and may be used together."""
    for name in placement.unknown_partitions:
        message = (
            f"this cluster has no partition `{name}`{did_you_mean(name, limits.partitions)} "
            f"(partitions: {', '.join(limits.partitions)})"
        )
        yield _problem(job, "resources.slurm.partition", message)
    accounts = sorted({entry.account for entry in limits.associations})
    if accounts and placement.account is not None and not placement.associations:
        message = (
            f"you have no account `{placement.account}` here"
            f"{did_you_mean(placement.account, accounts)} (accounts: {', '.join(accounts)})"
        )
        yield _problem(job, "resources.slurm.account", message)
    qos = placement.qos_name
    allowed = sorted({name for entry in placement.associations for name in entry.qos})
    if limits.enforces_qos and qos is not None and allowed and qos not in allowed:
        message = (
            f"you may not use the QOS `{qos}` here"
            f"{did_you_mean(qos, allowed)} (allowed: {', '.join(allowed)})"
        )
        yield _problem(job, "resources.slurm.qos", message)


def _time_problems(plan: Plan, job: PlannedJob, placement: Placement) -> Iterator[LimitProblem]:
    most, timeout_min = placement.max_time_min, job.resources.timeout_min
    if most is None or timeout_min <= most:
        return
    where = ", ".join(p.name for p in placement.partitions)
    message = f"{timeout_min:g} minutes: more than the {most:g} that {where} allows"
    given = plan.stage(job.stage).resources.timeout_min
    if timeout_min != given:
        each = round(timeout_min / given)
        message += (
            f": each array task works through {each} slices of {given:g} minutes, as the site "
            "allows too few jobs at once for fewer"
            if each != plan.stage(job.stage).slices_per_task
            else f" ({each} slices a task, {given:g} minutes each)"
        )
    yield _problem(job, "resources.timeout_min", message)


def _number_problems(plan: Plan, limits: ClusterLimits) -> Iterator[LimitProblem]:
    """Check the number of queued jobs, and whether job arrays are enabled."""
    most = submit_limit([job.resources for job in plan.jobs], limits)
    number = sum(job.num_tasks for job in plan.jobs)
    if most is not None and number > most:
        message = (
            f"the run needs {number} jobs at least, and this site lets you have {most} at once; "
            "split the spec"
        )
        yield LimitProblem(("stages",), message)
    for job in plan.jobs:
        if limits.max_array_size == 0 and plan.stage(job.stage).is_array:
            message = "job arrays are switched off on this cluster (MaxArraySize=0)"
            yield _problem(job, "array", message)


def _partition_problems(
    job: PlannedJob, partition: Partition, placement: Placement, *, trains: bool
) -> Iterator[LimitProblem]:
    """Yield the reasons why a partition could never run the job."""
    gpu_problems = _gpu_problems(job, partition, trains=trains)
    of_one_node = [*_size_problems(job, partition), *gpu_problems]
    yield from of_one_node
    limits = [partition.max_nodes, *(qos.max_nodes for qos in placement.qos)]
    num_nodes = sum(kind.num_nodes for kind in partition.kinds)
    most_nodes = min([num_nodes, *(limit for limit in limits if limit is not None)])
    resources = job.resources
    num_cores = (
        0
        if resources.slurm.get("overcommit")
        else resources.tasks_per_node * resources.cpus_per_task
    )
    mem_mb = (resources.mem_gb or 0) * 1024
    large_enough = [k for k in partition.kinds if k.cpus >= num_cores and k.mem_mb >= mem_mb]
    fitting = max(  # all nodes of a job have the same type of GPU
        sum(k.num_nodes for k in large_enough if k.num_gpus(gpu_type) >= resources.num_gpus)
        for gpu_type in resources.gpu_choice or (None,)
    )
    if resources.nodes > most_nodes:
        message = f"{resources.nodes} nodes: more than the {most_nodes} that one job may have here"
        yield _problem(job, "resources.nodes", message)
    elif resources.nodes > fitting and not of_one_node:
        message = (
            f"{resources.nodes} nodes with all that is asked for at once (cores, memory, GPUs): "
            f"more than the {fitting} of partition `{partition.name}`"
        )
        yield _problem(job, "resources.nodes", message)


def _size_problems(job: PlannedJob, partition: Partition) -> Iterator[LimitProblem]:
    """Check cores and memory against the largest node of the partition."""
    resources = job.resources
    largest = f"of the largest node of partition `{partition.name}`"
    cpus = resources.tasks_per_node * resources.cpus_per_task
    most_cpus = max(kind.cpus for kind in partition.kinds)
    if cpus > most_cpus and not resources.slurm.get("overcommit"):
        message = (
            f"{cpus} cores a node (tasks_per_node x cpus_per_task): more than the {most_cpus} "
            f"{largest}"
        )
        yield _problem(job, "resources.cpus_per_task", message)
    most_gb = max(kind.mem_mb for kind in partition.kinds) / 1024
    if resources.mem_gb is not None and resources.mem_gb > most_gb:
        shown_gb = math.floor(most_gb * 10) / 10  # round down: this much is accepted
        message = f"{resources.mem_gb:g} GB a node: more than the {shown_gb:.1f} {largest}"
        yield _problem(job, "resources.mem_gb", message)


def _gpu_problems(job: PlannedJob, partition: Partition, *, trains: bool) -> Iterator[LimitProblem]:
    resources = job.resources
    if not resources.num_gpus:
        return
    types = sorted({name for kind in partition.kinds for name in kind.gpus if name})
    features = {name for kind in partition.kinds for name in kind.features}
    for name in resources.gpu_choice:
        if types and name not in {*types, *features}:
            message = (
                f"partition `{partition.name}` has no GPUs of type `{name}`"
                f"{did_you_mean(name, types)} (types: {', '.join(types)})"
            )
            yield _problem(job, "resources.gpu", message)
            return
    choice = resources.gpu_choice or (None,)
    most = max(kind.num_gpus(name) for kind in partition.kinds for name in choice)
    named_slices = _named_slices(resources)
    most_cards = max(kind.num_cards(name) for kind in partition.kinds for name in choice)
    most_cards = 0 if named_slices else most_cards
    key = "gpus_per_node" if resources.gpus_per_node else "slurm"
    if resources.num_gpus > most:
        kind = f"{' or '.join(resources.gpu_choice)} " if resources.gpu else ""
        plural = "s" if resources.num_gpus > 1 else ""
        message = (
            f"{resources.num_gpus} {kind}GPU{plural} a node: more than the {most} of any node of "
            f"partition `{partition.name}`"
        )
        yield _problem(job, f"resources.{key}", message)
    elif trains and resources.num_gpus > max(1, most_cards):
        slices = ", ".join(named_slices or filter(is_slice, types))
        cards = ", ".join(name for name in types if not is_slice(name))
        message = (
            f"{resources.num_gpus} GPUs a node for one training are MIG slices in partition "
            f"`{partition.name}` ({slices}), and a training can use one slice per node, because "
            f"NCCL connects whole cards only; set gpus_per_node and tasks_per_node to "
            f"{most_cards or 1}"
            f"{f', or choose whole cards with gpu: {cards}' if cards and not most_cards else ''}"
        )
        yield _problem(job, f"resources.{key}", message)


def _named_slices(resources: JobResources) -> list[str]:
    """Return the slices that a job requests by name, in any key."""
    named = [*resources.gpu_choice]
    for key, value in resources.slurm.items():
        if key.replace("_", "-") in {"gres", "tres-per-task", "gpus-per-socket"}:
            named.append(str(value))
    return [name for name in named if is_slice(name)]


def limit_notes(plan: Plan, limits: ClusterLimits) -> tuple[str, ...]:
    """Return queries that failed, and trainings that may get a slice of a card by chance."""
    notes = dict.fromkeys(limits.problems)
    for job in plan.jobs:
        if plan.stage(job.stage).run not in _TRAININGS or not job.resources.gpus_per_node:
            continue
        for partition in place(job.resources, limits).partitions:
            types = sorted({name for kind in partition.kinds for name in kind.gpus if name})
            slices = [name for name in types if is_slice(name)]
            cards = [name for name in types if not is_slice(name)]
            if slices and cards and not job.resources.gpu_choice:
                notes[
                    f"`{job.stage}` names no type of GPU, and partition `{partition.name}` also "
                    f"has MIG slices ({', '.join(slices)}), which Slurm may give it: set "
                    f"resources.gpu to {' or '.join(cards)}"
                ] = None
    return tuple(notes)
