"""Ranks on GPUs of their own, and ranks that would share one."""

from __future__ import annotations

import pytest

from pipeline.train.preflight.shared_gpus import shared_gpu_problems
from tests.pipeline.train.preflight.cards import CPU, gpu

OWN = [gpu("a", "0000:3b:00.0"), gpu("b", "0000:5e:00.0")]


@pytest.mark.parametrize(
    ("nodes", "devices"),
    [
        (["n1", "n1"], OWN),
        (["n1", "n2"], [gpu("a", "0000:3b:00.0"), gpu("b", "0000:3b:00.0")]),  # one on each node
        (["n1", "n1"], [gpu(None), gpu(None)]),  # a build of torch without UUIDs
        (["n1", "n1"], [CPU, CPU]),
    ],
)
def test_ranks_on_gpus_of_their_own_are_fine(nodes, devices):
    assert shared_gpu_problems(nodes, devices) == []


def test_ranks_on_one_gpu_are_named_with_it_and_the_remedy():
    (problem,) = shared_gpu_problems(["n1"] * 4, [*OWN, OWN[0], gpu("c")])
    assert problem.startswith("ranks 0,2 (n1) would compute on one GPU (NVIDIA A100")
    assert "UUID a)" in problem
    assert "resources.gpus_per_node" in problem


def test_a_machine_that_plays_two_nodes_has_each_gpu_once():
    (problem,) = shared_gpu_problems(["local0", "local1"], [gpu("a"), gpu("a")])
    assert problem.startswith("ranks 0-1 (local0, local1) would compute on one GPU")


def test_slices_of_one_card_are_refused_and_of_two_nodes_not():
    slices = [gpu("MIG-1", "0000:3b:00.0"), gpu("MIG-2", "0000:3b:00.0")]
    (problem,) = shared_gpu_problems(["n1", "n1"], slices)
    assert problem.startswith("ranks 0-1 (n1) would compute on slices of one card")
    assert shared_gpu_problems(["n1", "n2"], slices) == []
