"""Jobs that a cluster could never run are named with the limit, and arrays are packed into it."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_jobs.cluster.limits import Association, ClusterLimits, NodeKind, Partition
from slurm_jobs.commands.limit_checks import limit_notes, limit_problems
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile
from tests.slurm_jobs.cluster.small_cluster import A100, CPU, OWN, cluster, planned, problems


@pytest.mark.parametrize(
    "resources",
    [
        {},
        {"nodes": 2, "tasks_per_node": 2, "cpus_per_task": 4, "mem_gb": 15},
        {"timeout_min": 1440},
        {"timeout_min": 1e5, "slurm": {"partition": "open"}},
        {"gpus_per_node": 8, "slurm": {"partition": "gpu"}},
        {"gpus_per_node": 4, "gpu": ["v100", "a100"], "nodes": 3, "slurm": {"partition": "gpu"}},
        {"cpus_per_task": 64, "slurm": {"partition": "cpu,gpu"}},
    ],
)
def test_what_fits_somewhere_is_let_through(resources: dict[str, Any]) -> None:
    assert problems(resources) == []


def test_the_memory_shown_as_the_limit_is_let_through() -> None:
    kind = replace(CPU, mem_mb=16_350)  # 15.967 GB
    limits = cluster(partitions={"cpu": Partition(name="cpu", is_default=True, kinds=(kind,))})
    ((_key, message),) = problems({"mem_gb": 16}, limits)
    assert "more than the 15.9 of the largest node" in message
    assert problems({"mem_gb": 15.9}, limits) == []


@pytest.mark.parametrize(
    ("resources", "key", "words"),
    [
        ({"slurm": {"partition": "gpus"}}, "partition", "did you mean `gpu`.*cpu, gpu, open"),
        ({"timeout_min": 1441}, "timeout_min", "1441 minutes: more than the 1440 that cpu"),
        (
            {"cpus_per_task": 9},
            "cpus_per_task",
            r"9 cores a node .*: more than the 8 of the largest",
        ),
        ({"mem_gb": 16}, "mem_gb", r"16 GB a node: more than the 15\.6"),
        ({"nodes": 3}, "nodes", "3 nodes: more than the 2 that one job may have"),
        (
            {"nodes": 4, "gpus_per_node": 1, "slurm": {"partition": "gpu"}},
            "nodes",
            "4 nodes: more than the 3 that one job may have",
        ),
        ({"gpus_per_node": 1}, "gpus_per_node", "1 GPU a node: more than the 0"),
        (
            {"gpus_per_node": 1, "gpu": ["h100"], "slurm": {"partition": "gpu"}},
            "gpu",
            "no GPUs of type `h100`.*a100, v100",
        ),
        (
            {"gpus_per_node": 8, "gpu": ["v100"], "slurm": {"partition": "gpu"}},
            "gpus_per_node",
            "8 v100 GPUs a node: more than the 4",
        ),
        (
            {"gpus_per_node": 4, "gpu": ["v100"], "mem_gb": 64, "slurm": {"partition": "gpu"}},
            "nodes",
            "all that is asked for at once.* more than the 0",
        ),
        (
            {
                "nodes": 3,
                "gpus_per_node": 1,
                "gpu": ["v100"],
                "slurm": {"partition": "gpu"},
            },
            "nodes",
            "more than the 2",
        ),
    ],
)
def test_what_could_never_run_is_named_with_the_limit(
    resources: dict[str, Any], key: str, words: str
) -> None:
    found = problems(resources)
    assert [place for place, _ in found] == [key]
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found[0][1])


def test_cores_may_be_shared_where_the_job_says_so() -> None:
    assert problems({"cpus_per_task": 9, "slurm": {"overcommit": True}}) == []


def test_an_array_beyond_what_may_be_queued_is_packed() -> None:
    limits = cluster(associations=OWN, num_queued=100)
    plan = planned({"timeout_min": 10}, limits, {"num_slices": 950})
    (job,) = plan.jobs
    assert (job.num_tasks, job.slices_per_task, job.resources.timeout_min) == (95, 10, 100)
    assert problems({"timeout_min": 10}, limits, {"num_slices": 950}) == []


def test_a_packed_task_that_takes_too_long_is_refused_with_the_reason() -> None:
    limits = cluster(associations=OWN, num_queued=100)
    ((place, message),) = problems({"timeout_min": 200}, limits, {"num_slices": 950})
    assert place == "timeout_min"
    assert "10 slices of 200 minutes" in message
    array = {"num_slices": 950, "slices_per_task": 10}
    ((_, message),) = problems({"timeout_min": 200}, limits, array)
    assert "(10 slices a task, 200 minutes each)" in message


def test_more_jobs_than_the_site_queues_are_refused_before_any_is() -> None:
    tight = (Association(account="vision", max_submit=1),)
    stages = {name: {"shell": "x"} for name in ("a", "b")}
    spec = RunSpec.model_validate({"name": "x1", "stages": stages})
    limits = cluster(associations=tight)
    (problem,) = limit_problems(make_plan(spec, ClusterProfile(), limits=limits), limits)
    assert problem.path == ("stages",)
    assert "needs 2 jobs at least, and this site lets you have 1 at once" in problem.message


def test_disabled_arrays_are_reported_at_the_array() -> None:
    ((place, message),) = problems({}, cluster(max_array_size=0), {"num_slices": 2})
    assert (place, "MaxArraySize=0" in message) == ("array", True)


def test_an_array_is_packed_into_what_the_controller_holds_of_all_users() -> None:
    stages = {"a": {"shell": "x", "array": {"num_slices": 10_000}}, "b": {"shell": "x"}}
    spec = RunSpec.model_validate({"name": "x1", "stages": stages})
    plan = make_plan(spec, ClusterProfile(), limits=ClusterLimits(max_jobs=10_000, num_queued=100))
    assert sum(job.num_tasks for job in plan.jobs) == 5_001
    roomy = make_plan(spec, ClusterProfile(), limits=ClusterLimits(max_jobs=10_001))
    assert roomy.jobs[0].num_tasks == 10_000


MIG = NodeKind(num_nodes=2, cpus=64, mem_mb=512_000, gpus={"a100_1g.5gb": 14})
BOTH = NodeKind(num_nodes=1, cpus=64, mem_mb=512_000, gpus={"a100": 2, "1g.5gb": 7})


def of_slices(
    kinds: tuple[NodeKind, ...], run: str = "train", **resources: Any
) -> tuple[list[str], tuple[str, ...]]:
    """Messages of the problems, and notes, of a stage on a cluster with one partition."""
    limits = cluster(partitions={"gpu": Partition(name="gpu", is_default=True, kinds=kinds)})
    stage = {"run": run, "resources": resources}
    spec = RunSpec.model_validate({"name": "a", "stages": {"s": stage}})
    plan = make_plan(spec, ClusterProfile(), limits=limits)
    return [p.message for p in limit_problems(plan, limits)], limit_notes(plan, limits)


@pytest.mark.parametrize(
    ("kinds", "resources", "remedy"),
    [
        ((MIG,), {"gpus_per_node": 2}, "tasks_per_node to 1"),
        ((MIG,), {"gpus_per_node": 2, "gpu": ["a100_1g.5gb"]}, "tasks_per_node to 1"),
        ((MIG,), {"slurm": {"gres": "gpu:a100_1g.5gb:2"}}, "tasks_per_node to 1"),
        ((MIG, A100), {"gpus_per_node": 2, "gpu": ["a100_1g.5gb"]}, "with gpu: a100"),
        ((MIG, A100), {"gpus_per_node": 2, "gpu": ["a100", "a100_1g.5gb"]}, "with gpu: a100"),
        ((MIG, A100), {"slurm": {"gres": "gpu:a100_1g.5gb:2"}}, "with gpu: a100"),
        ((BOTH,), {"gpus_per_node": 4}, "tasks_per_node to 2"),
    ],
)
def test_several_slices_a_node_are_refused_for_one_training(
    kinds: tuple[NodeKind, ...], resources: dict[str, Any], remedy: str
) -> None:
    (message,), _notes = of_slices(kinds, **resources)
    assert "are MIG slices in partition `gpu` (" in message
    assert remedy in message
    assert of_slices(kinds, run="own:each_on_its_own", **resources)[0] == []


@pytest.mark.parametrize(
    ("kinds", "resources", "num_notes"),
    [
        ((MIG,), {"gpus_per_node": 1, "nodes": 2}, 0),
        ((BOTH, A100), {"gpus_per_node": 2, "gpu": ["a100"]}, 0),
        ((BOTH, A100), {"gpus_per_node": 2}, 1),  # Slurm may choose slices
        ((A100,), {"gpus_per_node": 8}, 0),
    ],
)
def test_a_training_may_have_one_slice_a_node_or_whole_cards(
    kinds: tuple[NodeKind, ...], resources: dict[str, Any], num_notes: int
) -> None:
    problems, notes = of_slices(kinds, **resources)
    assert problems == []
    assert len(notes) == num_notes
    assert all("set resources.gpu to a100" in note for note in notes)
