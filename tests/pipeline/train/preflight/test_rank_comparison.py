"""Ranks that differ: in versions, cards, threads or what they share."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.train.preflight.rank_comparison import RankFacts, compare_ranks
from tests.pipeline.train.preflight.cards import A100, CPU, H100, V100, V100_32, card, gpu


def ranks_on(*devices, **changes):
    """Two ranks on each of these, node after node; `changes` are those of the last rank."""
    found = [
        RankFacts(
            node_name=f"node-{number}",
            device=device,
            versions={"torch": device.torch_version, "peft": "0.21.2"},
            precision="bf16",
            num_compute_threads=8,
            config="abc",
        )
        for number, device in enumerate(devices)
        for _ in range(2)
    ]
    return [*found[:-1], dataclasses.replace(found[-1], **changes)]


OTHER_PAGES = card(A100.name, (8, 0), total_gb=42.0)
OTHER_CPU = dataclasses.replace(CPU, name="AMD EPYC")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *((device, device) for device in (V100, A100, H100, CPU)),
        (A100, OTHER_PAGES),  # what retired pages take
        (CPU, OTHER_CPU),
    ],
)
def test_ranks_that_are_alike_have_nothing_to_say(first, second):
    assert compare_ranks(ranks_on(first, second)) == ([], [])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"versions": {"torch": "2.12.1+cu126", "peft": "0.21.2"}},
            (
                "ranks are not alike: torch is 2.13.0+cu126 on ranks 0-2 (node-0, node-1), "
                "2.12.1+cu126 on rank 3 (node-1): give all nodes the same environment (the "
                "stage's python, setup lines)"
            ),
        ),
        (
            {"versions": {"torch": "2.13.0+cu126"}},
            "peft is 0.21.2 on ranks 0-2 (node-0, node-1), missing on rank 3 (node-1)",
        ),
        ({"precision": "fp16"}, "precision is bf16 on ranks 0-2 (node-0, node-1), fp16 on rank 3"),
        ({"config": "abd"}, "the stage's config is abc on ranks 0-2"),
    ],
)
def test_another_version_precision_or_config_names_ranks_nodes_and_values(changes, told):
    (problem,), _ = compare_ranks(ranks_on(A100, A100, **changes))
    assert told in problem


def test_mixed_cards_are_a_problem():
    (problem,), _ = compare_ranks(ranks_on(A100, H100))
    assert "NVIDIA A100-SXM4 (compute capability 8.0) on ranks 0-1 (node-0)" in problem
    assert "NVIDIA H100 HBM3 (compute capability 9.0) on ranks 2-3 (node-1)" in problem
    assert "request one kind of card" in problem


def test_cards_that_differ_only_in_memory_are_a_warning():
    problems, (warning,) = compare_ranks(ranks_on(V100, V100_32))
    assert problems == []
    assert warning == (
        "ranks are not alike: memory of the card is 16.9 GB on ranks 0-1 (node-0), 34.1 GB on "
        "ranks 2-3 (node-1): the smallest bounds what a microbatch may hold"
    )


def test_different_cards_of_one_capability_are_a_warning():
    other = card("NVIDIA A100-PCIE-40GB", A100.capability, total_gb=A100.total_bytes / 1e9)
    problems, (warning,) = compare_ranks(ranks_on(A100, other))
    assert problems == []
    assert "NVIDIA A100-PCIE (compute capability 8.0) on ranks 2-3 (node-1)" in warning
    assert warning.endswith("all run at the pace of the slowest")


@pytest.mark.parametrize("device", [CPU, A100])
def test_a_different_number_of_threads_is_a_warning(device):
    told = (
        "ranks are not alike: the number of compute threads is 8 on rank 0 (node-0), 4 on rank 1 "
        "(node-0): set num_compute_threads"
    )
    assert compare_ranks(ranks_on(device, num_compute_threads=4)) == ([], [told])


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
