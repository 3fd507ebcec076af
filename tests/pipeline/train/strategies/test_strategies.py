"""Two ranks learn what one process learns, however the model is spread; see `cases`."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.pipeline.train.strategies.cases import (
    HF_KINDS,
    IN_STEP,
    OPTIONS,
    PACKED,
    PARTS,
    RECOMPUTED,
)
from tests.pipeline.train.strategies.conftest import needs_newer_torch

CLOSE = 1e-6
SHARDED_ALIKE = (
    *("fsdp2, one unit", "hybrid within one node", "weights kept after forward"),
    *("prefetch of two", "offload", "gradients sharded"),
)


def relatively(values: list[float], rel: float = CLOSE) -> Any:
    return pytest.approx(values, rel=rel)


def test_no_case_crashed(by_rank):
    crashes = [f"{name}:\n{case['crash']}" for case_of in by_rank for name, case in case_of.items()
               if "crash" in case and not needs_newer_torch(case)]  # fmt: skip
    assert crashes == []


def test_ranks_agree_on_losses_norms_and_weights_bit_for_bit(by_rank):
    trained = [name for name, case in by_rank[0].items() if "weights" in case]
    assert len(trained) > 20
    for name in trained:
        same = [{k: v for k, v in found[name].items() if k != "seconds"} for found in by_rank]
        assert same[0] == same[1], name


@pytest.mark.parametrize("option", OPTIONS)
def test_two_ranks_learn_what_one_process_learns(found, option):
    assert found[option]["losses"] == relatively(found["single"]["losses"])
    assert found[option]["norms"] == relatively(found["single"]["norms"], 1e-5)
    assert len(set(found[option]["losses"])) == 3, "nothing was learned"


@pytest.mark.parametrize(
    "option", ["fsdp2", "ddp", "hybrid over two nodes", "gradients sharded", "offload"]
)
def test_accumulated_microbatches_learn_what_the_large_batch_learns(found, option):
    accumulated = found[f"{option}, 2 microbatches"]["losses"]
    assert accumulated == relatively(found["single"]["losses"])
    assert accumulated == relatively(found["single, 4 microbatches"]["losses"])


def test_gradients_are_reduced_with_the_last_microbatch_alone(by_rank):
    first = [found["fsdp2, first microbatch"] for found in by_rank]
    assert [case["num_gradients"] for case in first] == [0, 0], "they lie whole, beside the shards"
    first = [found["ddp, first microbatch"] for found in by_rank]
    assert first[0]["num_gradients"] == first[1]["num_gradients"] > 0
    assert first[0]["sum"] != relatively(first[1]["sum"], 1e-2), "each rank has its own"


def test_gradients_that_accumulate_in_shards_are_reduced_with_each_microbatch(by_rank):
    first = [found["gradients sharded, first microbatch"] for found in by_rank]
    assert first[0]["num_gradients"] > 0
    assert first[0]["sum"] == first[1]["sum"] > 0


def test_gathered_weights_of_a_layer_are_freed_after_its_forward_pass_or_kept(found):
    names = ("fsdp2", "weights kept after forward")
    cases = [found[f"{name}, first microbatch"] for name in names]
    assert [case["layer_is_sharded_after_forward"] for case in cases] == [True, False]


@pytest.mark.parametrize("option", SHARDED_ALIKE)
def test_options_of_sharding_change_no_bit(found, option):
    assert found[option]["weights"] == found["fsdp2"]["weights"]


@pytest.mark.parametrize("name", ["single", *RECOMPUTED])
def test_layers_that_are_computed_again_change_no_bit(found, name):
    again, once = found[f"{name}, recomputed"], found[name]
    for key in ("losses", "norms", "weights"):
        assert again[key] == once[key]
    assert again["facts"] == {**once["facts"], "num_recomputed": 4}
    assert once["facts"]["num_recomputed"] == 0


def test_layers_that_are_compiled_and_computed_again_change_no_bit_of_what_is_traced(found):
    compiled, plain = found["fsdp2, compiled"], found["fsdp2"]
    assert (compiled["losses"], compiled["weights"]) == (plain["losses"], plain["weights"])
    facts = compiled["facts"]
    assert (facts["num_compiled"], facts["num_recomputed"]) == (2, 4)


def test_replicated_over_nodes_of_one_rank_is_ddp_bit_for_bit(found):
    assert found["hybrid over two nodes"]["weights"] == found["ddp"]["weights"]


@pytest.mark.parametrize(
    ("option", "mesh", "placement"),
    [
        ("fsdp2", {"shard": 2}, "Shard(dim=0)"),
        ("hybrid over two nodes", {"replicate": 2, "shard": 1}, "Replicate(), Shard(dim=0)"),
        ("hybrid within one node", {"replicate": 1, "shard": 2}, "Replicate(), Shard(dim=0)"),
        ("ddp", {"replicate": 2}, "whole"),
    ],
)
def test_facts_tell_how_the_model_lies(found, option, mesh, placement):
    facts = found[option]["facts"]
    assert (facts["mesh"], list(facts["placements"])) == (mesh, [placement])


def test_facts_count_what_is_gathered_one_at_a_time(found):
    counts = [found[name]["facts"]["num_units"] for name in ("fsdp2", "fsdp2, one unit", "ddp")]
    assert counts == [5, 1, 0]


@pytest.mark.parametrize("kind", IN_STEP)
@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_a_rank_without_an_image_stays_in_step(found, kind, strategy):
    alone = found[f"text on rank 1, {kind}, single"]["losses"]
    assert found[f"text on rank 1, {kind}, {strategy}"]["losses"] == relatively(alone)


@pytest.mark.parametrize("kind", ["small_vlm", *HF_KINDS])
@pytest.mark.parametrize("parts", PARTS)
def test_a_rank_without_an_image_stays_in_step_where_parts_learn(found, kind, parts):
    alone = found[f"text on rank 1, {parts} of {kind}, single"]["losses"]
    assert found[f"text on rank 1, {parts} of {kind}, fsdp2"]["losses"] == relatively(alone)
    assert len(set(alone)) == 3, "nothing was learned"


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
@pytest.mark.parametrize(("precision", "rel"), [("fp16", 1e-3), ("bf16", 1e-2)])
def test_halved_precision_stays_close_on_two_ranks(found, strategy, precision, rel):
    case = found[f"{strategy}, {precision}"]
    assert case["losses"] == relatively(found["single"]["losses"], rel)
    assert case["losses"] != relatively(found["single"]["losses"])
    assert case["num_skips"] == 0


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_ddp_computes_in_halved_precision_what_one_process_does(found, precision):
    alone = found[f"single, {precision}"]["losses"]
    assert found[f"ddp, {precision}"]["losses"] == relatively(alone, 2e-3)


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_an_overflow_that_one_rank_sees_is_skipped_on_all_and_the_data_goes_on(by_rank, strategy):
    for found in by_rank:
        case = found[f"{strategy}, overflow on rank 1"]
        assert (case["num_skips"], case["scale"]) == (1, 512.0)
        assert [math.isinf(norm) for norm in case["norms"]] == [False, True, False]
        # Of the same four samples: weights that an overflow had touched would lose differently.
        assert case["losses"][2] == pytest.approx(case["losses"][1], rel=1e-4)
        assert case["losses"][1] < case["losses"][0]


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_a_scale_that_is_too_large_is_halved_until_it_fits(found, strategy):
    case = found[f"{strategy}, fp16 from a scale that overflows"]
    num_skips = case["num_skips"]
    assert 0 < num_skips < 5
    assert case["scale"] == 2.0**20 / 2**num_skips
    assert [math.isinf(norm) for norm in case["norms"]] == [step < num_skips for step in range(6)]
    assert case["losses"][-1] < case["losses"][num_skips]


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_too_many_overflows_in_a_row_are_an_error_that_names_samples(by_rank, strategy):
    for found in by_rank:
        message = found[f"{strategy}, fp16 that always overflows"]["error"]
        assert "gradients of 2 steps in a row overflowed under fp16, last" in message
        assert "samples of this rank: 00000000" in message
        assert "set `precision: fp32`" in message


def test_communication_that_nothing_is_computed_beside_is_in_the_profile(by_rank):
    for rank in by_rank:
        found = rank["profiled"]
        assert 0 < found["exposed_s"] <= found["communication_s"] < found["wall_s"]
        # fully_shard overlaps nothing on a CPU: nearly all of it is waited for.
        assert found["exposed_s"] > 0.5 * found["communication_s"]


@pytest.mark.parametrize("name", ["single", *PACKED])
def test_packed_rows_learn_the_same_with_borders_as_with_the_mask(found, name):
    varlen, dense = (found[f"packed, {attention}, {name}"] for attention in ("varlen", "dense"))
    rounding = 100 if name.endswith("bf16") else 1
    assert varlen["losses"] == pytest.approx(dense["losses"], rel=1e-4 * rounding)
    assert varlen["norms"] == pytest.approx(dense["norms"], rel=1e-3 * rounding)
