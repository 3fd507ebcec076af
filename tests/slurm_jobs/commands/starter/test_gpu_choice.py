"""What `init` says about the GPUs of a cluster: all kinds, the chosen one and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.cluster.limits import NodeKind
from slurm_jobs.commands.starter.gpu_choice import gpu_lines
from slurm_jobs.commands.starter.starter_facts import JobPlace
from tests.slurm_jobs.commands.starter.gpu_places import A100, H100, V100, place_of

SMALL_A100 = NodeKind(num_nodes=9, cpus=32, mem_mb=256 * 1024, gpus={"a100": 2})
SLICES = NodeKind(num_nodes=9, cpus=64, mem_mb=512 * 1024, gpus={"a100_1g.5gb": 14})


def test_two_v100_nodes_next_to_four_a100_are_named_with_how_to_get_them() -> None:
    chosen, other = gpu_lines(place_of(V100, A100))
    assert chosen.startswith("4 nodes with 4 x a100 in partition gpu: trainings get these, ")
    assert other == (
        "2 nodes with 4 x v100 in partition gpu: to train on these, set `resources: {gpu: v100}`"
    )


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (place_of(A100, V100), "because there are most of them"),
        (place_of(A100, old=(V100,), partition="old"), "as you chose"),
        (place_of(A100, SMALL_A100), "because these nodes have most GPUs of their type"),
        (place_of(SLICES, V100), "because whole cards come before MIG slices"),
    ],
)
def test_the_reason_of_the_choice_is_the_one_that_decided(place: JobPlace, reason: str) -> None:
    first, *_ = gpu_lines(place)
    assert first.endswith(f"trainings get these, {reason}")


@pytest.mark.parametrize(
    ("other", "resources"),
    [
        (SMALL_A100, "{gpus_per_node: 2, tasks_per_node: 2}"),
        (H100, "{gpu: h100, gpus_per_node: 8, tasks_per_node: 8}"),
        (SLICES, '{gpu: "a100_1g.5gb", gpus_per_node: 1, tasks_per_node: 1}'),
    ],
)
def test_other_nodes_of_the_partition_come_with_the_request_for_them(
    other: NodeKind, resources: str
) -> None:
    *_, line = gpu_lines(place_of(replace(A100, num_nodes=40), other))
    assert line.endswith(f"to train on these, set `resources: {resources}`")


def test_nodes_of_another_partition_come_with_its_name() -> None:
    *_, line = gpu_lines(place_of(A100, old=(V100,)))
    assert line.endswith("set `resources: {gpu: v100, slurm: {partition: old}}`")


def test_gpus_without_types_are_told_apart_by_the_features_of_their_nodes() -> None:
    new = replace(A100, gpus={"": 4}, features=frozenset({"a100", "ib"}))
    old = replace(V100, gpus={"": 4}, features=frozenset({"v100"}))
    lines = gpu_lines(place_of(new, old))
    assert lines[0].startswith("4 nodes with 4 x GPU (features a100, ib) in partition gpu: ")
    assert lines[1].startswith("2 nodes with 4 x GPU (features v100) in partition gpu: ")
    assert all("to choose" in line for line in lines)


def test_equal_nodes_are_counted_together_and_need_no_line() -> None:
    assert gpu_lines(place_of(A100, replace(A100, num_nodes=1, cpus=32))) == []
    assert gpu_lines(place_of(replace(A100, gpus={}))) == []
