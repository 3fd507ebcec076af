"""Two ranks learn what one process learns, however the model is parallelized; see the cases."""

from __future__ import annotations

import math

import pytest
import torch

from tests.pipeline.train.strategies.cases import (
    HF_KINDS,
    IN_STEP,
    OPTIONS,
    PACKED,
    PARTS,
    RECOMPUTED,
    UNCHECKED,
)
from tests.pipeline.train.strategies.cases_memory import STRATEGIES as HELD
from tests.pipeline.train.strategies.cases_microbatches import (
    MORE_STRATEGIES,
    STRATEGY,
    given,
    searching,
)
from tests.pipeline.train.strategies.cases_optimizers import STRATEGIES as OF_BITSANDBYTES
from tests.pipeline.train.strategies.conftest import needs_newer_torch, relatively


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


@pytest.mark.parametrize("name", ["single", *RECOMPUTED])
def test_layers_that_are_computed_again_change_no_bit(found, name):
    again, once = found[f"{name}, recomputed"], found[name]
    for key in ("losses", "norms", "weights"):
        assert again[key] == once[key]
    assert again["facts"] == {**once["facts"], "num_recomputed": 4}
    assert once["facts"]["num_recomputed"] == 0


def test_compiled_and_recomputed_layers_do_not_change_what_is_learned(found):
    compiled, plain = found["fsdp2, compiled"], found["fsdp2"]
    assert (compiled["losses"], compiled["weights"]) == (plain["losses"], plain["weights"])
    facts = compiled["facts"]
    assert (facts["num_compiled"], facts["num_recomputed"]) == (2, 4)


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


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_an_overflow_on_one_rank_is_skipped_on_all_and_the_data_goes_on(by_rank, strategy):
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


def test_exposed_communication_is_in_the_profile(by_rank):
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


@pytest.mark.parametrize("name", ["single", *PACKED])
@pytest.mark.parametrize("attention", ["varlen", "dense"])
def test_packed_samples_of_all_ranks_are_compared_with_themselves_alone(found, attention, name):
    result = found[f"packed, {attention}, {name}"]["packed_check"]
    assert result["num_samples"] == (1 if name == "single" else 2)
    assert result["is_exact"]


@pytest.mark.parametrize("name", UNCHECKED)
def test_the_check_of_packed_samples_changes_no_bit_of_what_ranks_learn(found, name):
    plain, checked = found[f"packed, dense, {name}, unchecked"], found[f"packed, dense, {name}"]
    assert (plain["losses"], plain["weights"]) == (checked["losses"], checked["weights"])
    assert plain["packed_check"] is None


def test_a_rank_without_packed_rows_joins_the_passes_of_the_others(found):
    assert found["packed on one rank"]["packed_check"]["num_samples"] == 1


def test_a_leak_on_one_rank_ends_all_of_them(by_rank):
    first, second = (found["leak on rank 1"]["error"] for found in by_rank)
    assert first == second
    assert first.startswith("PackingLeakError: ")
    assert "in the first batch of rank 1" in first


EVEN = ("weights_bytes", "buffers_bytes", "gradients_bytes")
"""What is padded, and so as large on every rank."""


@pytest.mark.parametrize("name", HELD)
def test_computed_state_is_what_a_step_leaves_behind_to_the_byte(by_rank, name):
    for rank, found in enumerate(by_rank):
        case = found[f"memory, {name}"]
        held = case["held"]
        computed = {key: case["computed"][key] for key in held}
        assert {key: held[key] for key in EVEN} == {key: computed[key] for key in EVEN}
        if rank == 0:
            assert held == computed
        assert 0 < held["optimizer_bytes"] <= computed["optimizer_bytes"]


def test_sharded_state_is_half_of_the_whole(found):
    whole, half = (found[f"memory, {name}"]["held"] for name in ("ddp", "fsdp2"))
    assert half["weights_bytes"] == pytest.approx(whole["weights_bytes"] / 2, rel=0.01)
    assert half["optimizer_bytes"] == pytest.approx(whole["optimizer_bytes"] / 2, rel=0.01)


def test_gradients_between_microbatches_are_whole_as_computed(by_rank):
    for found in by_rank:
        case = found["memory, accumulating"]
        assert case["held"] == case["computed"] > 0


@pytest.fixture(
    params=[STRATEGY, *(pytest.param(s, marks=pytest.mark.slow) for s in MORE_STRATEGIES)]
)
def searches(request):
    """A strategy, and what both ranks found."""
    strategy = request.param
    name = "by_rank" if strategy == STRATEGY else "searched_by_rank"
    return strategy, request.getfixturevalue(name)


def test_the_rank_with_the_least_memory_decides_for_all(searches):
    strategy, by_rank = searches
    cases = [found[searching(strategy)] for found in by_rank]
    assert [case.get("error") for case in cases] == [None, None]
    assert [case["roomy"] for case in cases] == [1, 1]
    assert [case["settled"] for case in cases] == [[2, 2], [2, 2]]
    assert cases[0]["num_kept"] == [1.0], "by rank 0 alone"


def test_trials_on_two_ranks_leave_no_trace_in_the_weights(searches):
    strategy, (found, _) = searches
    # Files of accelerate learn what ours do, bit for bit.
    assert found[searching(strategy)]["losses"] == found[given(strategy)]["losses"]
    assert found[searching(strategy)]["weights"] == found[given(strategy)]["weights"]


@pytest.mark.parametrize("name", OF_BITSANDBYTES)
def test_updates_of_shards_are_those_of_the_whole(found, name):
    case, torch_s = found[f"32-bit of bitsandbytes, {name}"], found["32-bit, single"]
    assert case["losses"] == pytest.approx(torch_s["losses"], rel=1e-6)
    assert case["norms"] == pytest.approx(torch_s["norms"], rel=1e-5)


@pytest.mark.parametrize("name", [*OF_BITSANDBYTES, "single", "fp16"])
def test_8_bit_state_learns_what_32_bit_state_does_within_its_rounding(found, name):
    losses, full = found[f"8-bit, {name}"]["losses"], found["32-bit, single"]["losses"]
    assert losses == pytest.approx(full, rel=2e-3)
    assert losses != pytest.approx(full, rel=1e-6)
    assert losses[-1] < losses[0]


def test_every_rank_of_ddp_rounds_alike(by_rank):
    weights = {found["8-bit, ddp"]["weights"] for found in by_rank}
    assert len(weights) == 1


def test_bitsandbytes_itself_cannot_update_what_is_sharded(found):
    assert "DTensor" in found["8-bit, unwrapped"]["said"]


def test_each_rank_takes_its_own_rows_of_a_whole_state(by_rank):
    cases = [found["8-bit, own part of the whole"] for found in by_rank]
    assert [case["num"] for case in cases] == [65 * 128, 64 * 128]
    assert max(case["difference"] for case in cases) < 0.02


def test_local_tensor_updates_equal_those_of_dtensors_on_two_ranks(by_rank):
    cases = [found["local updates"] for found in by_rank]
    assert all(case["is_same_norm"] and case["are_same_weights"] for case in cases), cases
    torch.manual_seed(1)
    gradients = [torch.randn(shape) for shape in ((7, 5), (3,), (1, 4))]
    whole = float(torch.nn.utils.get_total_norm(gradients))
    assert [case["norm"] for case in cases] == pytest.approx([whole] * 2, rel=1e-6)
