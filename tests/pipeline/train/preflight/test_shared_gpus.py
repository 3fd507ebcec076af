"""Ranks on GPUs of their own, and ranks that would share one."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.train.device.device_facts import DeviceFacts
from pipeline.train.device.rank_device import prepare_device
from pipeline.train.preflight.rank_comparison import RankFacts, compare_ranks
from pipeline.train.preflight.shared_gpus import shared_gpu_problems
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import TrainConfig
from tests.contexts import make_context
from tests.pipeline.train.preflight.cards import A100, CPU


def gpu(uuid: str | None, pci_address: str | None = None) -> DeviceFacts:
    return dataclasses.replace(A100, uuid=uuid, pci_address=pci_address)


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


def test_the_preflight_refuses_ranks_that_share_a_gpu():
    by_rank = [
        RankFacts(
            node_name="n1",
            device=gpu("a"),
            versions={},
            precision="bf16",
            num_compute_threads=8,
            config="c",
        )
    ] * 2
    problems, warnings = compare_ranks(by_rank)
    assert [problem[:9] for problem in problems] == ["ranks 0-1"]
    assert warnings == []


@pytest.mark.parametrize(
    ("local_rank", "num_visible", "index"),
    [(0, 4, 0), (3, 4, 3), (3, 1, 0), (3, 2, 1)],  # a node's GPUs, one of its own, two of its own
)
def test_a_rank_uses_the_gpu_of_its_number_among_those_it_sees(
    monkeypatch, tmp_path, local_rank, num_visible, index
):
    chosen = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: num_visible)
    monkeypatch.setattr("torch.cuda.set_device", chosen.append)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _device: (8, 0))
    context = make_context("train", tmp_path, local_rank=local_rank, num_local_ranks=4)
    prepare_device(TrainConfig(num_steps=1), context)
    assert [device.index for device in chosen] == [index]


def test_every_rank_fails_before_training_on_a_shared_gpu(monkeypatch, make_train_run):
    monkeypatch.setenv("GPU_UUID", "one")
    run = make_train_run(num_steps=1)
    run.attempt = 1
    shared = {"main_port": run.new_port(), "config": run.config}
    contexts = [run.context(rank, 2, **shared) for rank in range(2)]
    ranks = [run.spawn("shared_gpu_rank.py", *pair) for pair in enumerate(contexts)]
    ends = run.finish(ranks)
    assert [code for code, _ in ends] == [StageConfigError.exit_code] * 2
    for _, printed in ends:
        assert "ranks 0-1 (node-0) would compute on one GPU" in printed
