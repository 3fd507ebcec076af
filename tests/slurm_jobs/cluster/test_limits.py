"""Kinds of nodes by their GPUs, and a cluster that was not asked for its limits."""

from dataclasses import replace

from slurm_jobs.cluster.limits import NO_LIMITS, NodeKind, Partition
from slurm_jobs.commands.limit_checks import limit_problems
from tests.slurm_jobs.cluster.small_cluster import cluster, planned, problems


def test_a_cluster_that_was_not_asked_has_no_limits() -> None:
    assert problems({"nodes": 999, "mem_gb": 9999, "timeout_min": 1e6}, NO_LIMITS) == []


def test_types_of_gpu_may_be_features_of_the_nodes() -> None:
    nodes = tuple(
        NodeKind(num_nodes=2, cpus=8, mem_mb=16_000, gpus={"": 4}, features=frozenset({kind}))
        for kind in ("a100", "v100")
    )
    limits = cluster(partitions={"gpu": Partition(name="gpu", is_default=True, kinds=nodes)})
    assert problems({"gpus_per_node": 4, "gpu": ["a100", "v100"]}, limits) == []
    assert problems({"gpus_per_node": 5, "gpu": ["a100", "v100"]}, limits) != []


def test_nodes_of_a_type_that_a_job_no_longer_may_get_are_none_for_it() -> None:
    asked = {"gpus_per_node": 4, "gpu": ["v100", "a100"], "nodes": 3, "slurm": {"partition": "gpu"}}
    made = planned(asked, cluster())
    (job,) = made.jobs
    kept = replace(made, jobs=(replace(job, resources=replace(job.resources, gpu_kept="v100")),))
    (problem,) = limit_problems(kept, cluster())
    assert "more than the 2 of partition `gpu`" in problem.message
