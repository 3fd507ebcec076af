"""A cluster of three partitions, and problems of jobs on it."""

from typing import Any

from slurm_jobs.cluster.limits import Association, ClusterLimits, NodeKind, Partition
from slurm_jobs.commands.limit_checks import limit_problems
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Plan
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile

CPU = NodeKind(num_nodes=2, cpus=8, mem_mb=16_000)
V100 = NodeKind(num_nodes=2, cpus=8, mem_mb=16_000, gpus={"v100": 4})
A100 = NodeKind(num_nodes=4, cpus=64, mem_mb=512_000, gpus={"a100": 8})


def cluster(**more: Any) -> ClusterLimits:
    partitions = {
        "cpu": Partition(name="cpu", is_default=True, max_time_min=1440, kinds=(CPU,)),
        "gpu": Partition(name="gpu", max_time_min=2880, max_nodes=3, kinds=(V100, A100)),
        "open": Partition(name="open", kinds=(CPU,)),
    }
    known: dict[str, Any] = {"partitions": partitions, "max_array_size": 1001}
    return ClusterLimits(**{**known, **more})


def planned(
    resources: dict[str, Any], limits: ClusterLimits, array: dict[str, Any] | None = None
) -> Plan:
    stage = {"shell": "x", "resources": resources, **({"array": array} if array else {})}
    spec = RunSpec.model_validate({"name": "a", "stages": {"s": stage}})
    return make_plan(spec, ClusterProfile(), limits=limits)


def problems(
    resources: dict[str, Any],
    limits: ClusterLimits | None = None,
    array: dict[str, Any] | None = None,
) -> list[tuple[str, str]]:
    """Last key of the place, and message, of each problem."""
    limits = limits or cluster()
    found = limit_problems(planned(resources, limits, array), limits)
    return [(problem.path[-1], problem.message) for problem in found]


OWN = (Association(account="vision", qos=("normal", "long"), default_qos="normal", max_submit=200),)
