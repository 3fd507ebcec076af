"""What does not fit is an error, what may not fit a warning, each with what to change."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.train.host_memory import HostMemory
from pipeline.train.memory import (
    MemoryNeed,
    describe_need,
    judge_card,
    judge_node,
    remedies,
)
from slurm_jobs.shared.config import build_config
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import StageConfigError
from tests.pipeline.train.preflight.cards import A100, H100, V100, card

GB = 10**9
NEED = MemoryNeed(
    weights_bytes=7 * GB,
    buffers_bytes=0,
    gradients_bytes=7 * GB,
    optimizer_bytes=14 * GB,
    accumulated_bytes=0,
    computing_bytes=3 * GB,
    activations_bytes=2 * GB,
    mask_bytes=0,
    offloads=False,
)


def test_state_that_is_larger_than_the_card_is_a_problem_that_adds_up():
    with pytest.raises(StageConfigError) as error:
        judge_card(NEED, V100, "take adapters")
    assert str(error.value) == (
        "each rank must hold at least 28.00 GB (weights 7.00 GB, gradients 7.00 GB, optimizer "
        "14.00 GB), but Tesla V100-SXM2-16GB (compute capability 7.0) has 16.90 GB: take adapters"
    )


def test_state_that_fits_with_no_room_for_the_rest_is_a_warning():
    warning = judge_card(NEED, card("NVIDIA A100-SXM4-40GB", (8, 0), total_gb=30.0), "")
    assert "will hold 33.00 GB or more" in warning
    assert "activations 2.00 GB or more), but NVIDIA A100-SXM4-40GB" in warning


def test_cards_with_room_are_warned_of_only_if_others_use_them():
    for facts in (A100, H100):
        assert judge_card(NEED, facts, "") is None
    shared = card("NVIDIA H100 80GB HBM3", (9, 0), total_gb=85.0, free_gb=60.0)
    assert "25.00 GB of NVIDIA H100 80GB HBM3" in judge_card(NEED, shared, "")


def judge(least_gb: float, expected_gb: float, source: str = "SLURM_MEM_PER_NODE") -> str | None:
    host = HostMemory(limit_bytes=8 * GB, source=source, available_bytes=6 * GB)
    return judge_node(
        least_bytes=int(least_gb * GB),
        expected_bytes=int(expected_gb * GB),
        host=host,
        node_name="node-3",
        remedy="take adapters",
    )


def test_a_node_with_too_little_memory_is_named_with_who_says_so():
    with pytest.raises(StageConfigError) as error:
        judge(9, 9)
    assert str(error.value) == (
        "the ranks on node-3 must hold at least 9.00 GB, but SLURM_MEM_PER_NODE gives 8.00 GB: "
        "request more memory (resources.mem_gb), or take adapters"
    )
    assert "9.00 GB or more, but SLURM_MEM_PER_NODE gives" in judge(1, 9)
    assert "6.00 GB are available there now" in judge(1, 7)
    assert judge(1, 2) is None
    # a default of the site, which may not be enforced
    assert "SLURM_MEM_PER_CPU gives 8.00 GB" in judge(9, 9, "SLURM_MEM_PER_CPU")


def told(num_ranks: int = 4, need: MemoryNeed = NEED, **config) -> list[str]:
    made = build_config(TrainConfig, {"num_steps": 1, **config})
    kind = made.optimizer.kind
    return remedies(made, need, num_ranks=num_ranks, optimizer_kind=kind).split("; or ")


def test_remedies_are_what_the_config_does_not_have_yet_in_order():
    words = ["adapters", "quantize", "more ranks", "adamw_8bit", "cpu_offload"]
    assert [word in each for word, each in zip(words, told(), strict=True)] == [True] * 5
    qlora = told(
        adapters={"rank": 4},
        quantize={"kind": "nf4"},
        optimizer={"kind": "adamw_8bit"},
        sharding={"cpu_offload": True},
    )
    assert qlora == ["use more ranks under fsdp2 (resources.nodes, tasks_per_node)"]


def test_remedies_name_sharding_where_weights_are_whole_or_whole_on_each_node():
    assert "set `strategy: fsdp2`" in told(strategy="ddp")
    assert "set `strategy: fsdp2` with several ranks" in told(strategy="single", num_ranks=1)
    assert "set `sharding: {within: all}`" in told(sharding={"within": "node"})


def test_gradients_that_accumulate_whole_are_the_first_thing_to_change():
    whole = dataclasses.replace(NEED, accumulated_bytes=28 * GB)
    assert told(need=whole)[0] == "set `sharding: {accumulate: sharded}`"
    assert "gradients 28.00 GB" in describe_need(whole)
