"""State that does not fit is an error, what may not fit a warning, each with what to change."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.train.memory.host_memory import HostMemory
from pipeline.train.memory.memory_fit import judge_card, judge_node, remedies
from pipeline.train.memory.memory_need import MemoryNeed, describe_need
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.train.configs import config_of
from tests.pipeline.train.memory.needs import NEED
from tests.pipeline.train.preflight.cards import A100, H100, V100, card

GB = 10**9


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


def on_a_node(least_gb: float, expected_gb: float, source="SLURM_MEM_PER_NODE") -> str | None:
    return judge_node(
        least_bytes=int(least_gb * GB),
        expected_bytes=int(expected_gb * GB),
        host=HostMemory(limit_bytes=8 * GB, source=source, available_bytes=6 * GB),
        node_name="node-3",
        remedy="take adapters",
    )


def test_a_node_with_too_little_memory_is_named_with_who_says_so():
    with pytest.raises(StageConfigError) as error:
        on_a_node(9, 9)
    assert str(error.value) == (
        "the ranks on node-3 must hold at least 9.00 GB, but SLURM_MEM_PER_NODE gives 8.00 GB: "
        "request more memory (resources.mem_gb), or take adapters"
    )
    assert "9.00 GB or more, but SLURM_MEM_PER_NODE gives" in on_a_node(1, 9)
    assert "6.00 GB are available there now" in on_a_node(1, 7)
    assert on_a_node(1, 2) is None
    # a default of the site, which may not be enforced
    assert "SLURM_MEM_PER_CPU gives 8.00 GB" in on_a_node(9, 9, "SLURM_MEM_PER_CPU")


def remedies_of(num_ranks: int = 4, need: MemoryNeed = NEED, **values) -> list[str]:
    config = config_of(**values)
    kind = config.optimizer.kind
    return remedies(config, need, num_ranks=num_ranks, optimizer_kind=kind).split("; or ")


def test_remedies_are_what_the_config_does_not_have_yet_in_order():
    words = ["adapters", "quantize", "more ranks", "adamw_8bit", "cpu_offload"]
    assert [word in each for word, each in zip(words, remedies_of(), strict=True)] == [True] * 5
    qlora = remedies_of(
        adapters={"rank": 4},
        quantize={"kind": "nf4"},
        optimizer={"kind": "adamw_8bit"},
        sharding={"cpu_offload": True},
    )
    assert qlora == ["use more ranks under fsdp2 (resources.nodes, tasks_per_node)"]


def test_remedies_name_sharding_where_a_rank_or_node_has_whole_weights():
    assert "set `strategy: fsdp2`" in remedies_of(strategy="ddp")
    assert "set `strategy: fsdp2` with several ranks" in remedies_of(strategy="single", num_ranks=1)
    assert "set `sharding: {within: all}`" in remedies_of(sharding={"within": "node"})


def test_gradients_that_accumulate_whole_are_the_first_thing_to_change():
    whole = dataclasses.replace(NEED, accumulated_bytes=28 * GB)
    assert remedies_of(need=whole)[0] == "set `sharding: {accumulate: sharded}`"
    assert "gradients 28.00 GB" in describe_need(whole)
