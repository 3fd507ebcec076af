"""Layers in 4 bits, sharded or not, learn what one process does; see `cases_quantized`."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_jobs.formats.configs.model_parts import storage_problem
from tests.pipeline.train.strategies.cases_quantized import COMBINATIONS, PARALLEL

FP16 = 1e-4
"""Relative difference that rounding to fp16 makes in these losses; ten times less than a step."""


def relatively(values: list[float], rel: float = 1e-6) -> Any:
    return pytest.approx(values, rel=rel)


@pytest.mark.parametrize("option", PARALLEL)
def test_two_ranks_learn_what_one_process_learns(found, option):
    case, alone = found[f"4 bits, {option}"], found["4 bits, single"]
    assert case["losses"] == relatively(alone["losses"])
    assert case["norms"] == relatively(alone["norms"], 1e-5)
    assert case["losses"][-1] < case["losses"][0] - 0.5


def test_layers_in_4_bits_that_are_computed_again_change_no_bit(found):
    again, once = found["4 bits, fsdp2, recomputed"], found["4 bits, fsdp2"]
    assert (again["losses"], again["weights"]) == (once["losses"], once["weights"])
    assert again["facts"]["num_recomputed"] == 4


def test_the_small_model_learns_sharded_what_it_learns_alone(found):
    alone = found["4 bits, small model, single"]["losses"]
    assert found["4 bits, small model"]["losses"] == relatively(alone)


def test_one_process_learns_what_peft_and_bitsandbytes_do_alone(found):
    case, theirs = found["4 bits, single"], found["4 bits, reference, fp32"]
    assert case["losses"] == relatively(theirs["losses"])
    assert case["norms"] == relatively(theirs["norms"], 1e-4)


@pytest.mark.parametrize("name", ["V100", "V100, ddp", "V100, single"])
def test_the_v100_recipe_gives_the_losses_of_peft_and_bitsandbytes_alone(found, name):
    case, theirs = found[f"4 bits, {name}"], found["4 bits, reference, fp16"]
    assert case["losses"] == relatively(theirs["losses"], FP16)
    assert case["norms"] == relatively(theirs["norms"], 20 * FP16)
    assert case["num_skips"] == 0
    assert case["losses"] != relatively(found["4 bits, reference, fp32"]["losses"])


def test_a_wrong_combination_of_dtypes_gives_other_losses_without_an_error(found):
    case, right = (
        found["4 bits, a wrong combination trains without an error"],
        found["4 bits, V100"],
    )
    differences = [
        abs(wrong - sound) / sound
        for wrong, sound in zip(case["losses"], right["losses"], strict=True)
    ]
    assert sum(difference > 10 * FP16 for difference in differences) >= 5


def test_bf16_may_be_stored_as_uint8_or_bf16_and_learns_the_same(found):
    cases = [found[f"4 bits, bf16{how}"] for how in ("", " stored as bf16")]
    assert (
        cases[0]["losses"]
        == cases[1]["losses"]
        == relatively(found["4 bits, single"]["losses"], 1e-3)
    )


@pytest.mark.parametrize(("strategy", "storage", "precision"), COMBINATIONS)
def test_the_table_says_in_which_combinations_bytes_survive(by_rank, strategy, storage, precision):
    told = storage_problem(storage=storage, strategy=strategy, precision=precision)
    for found in by_rank:
        case = found[f"4 bits, {strategy}, {storage} in {precision}"]
        if told is None:
            assert case["problem"] is None
            assert case["num_quantized"] == 14
        else:
            assert "14 of 14 layers in 4 bits have changed" in case["problem"]


def test_the_table_has_valid_and_invalid_combinations():
    told = [storage_problem(storage=s, strategy=t, precision=p) for t, s, p in COMBINATIONS]
    assert sum(problem is None for problem in told) == 23
    assert "has not been proven" in storage_problem(
        storage="uint8", strategy="accelerate", precision="bf16"
    )


def test_packed_weights_are_sharded_and_facts_show_how_they_are_stored(found):
    facts = found["4 bits, V100"]["facts"]
    assert facts["dtypes"] == {"torch.float32": 71, "torch.uint8": 14}
    assert facts["placements"] == {"Shard(dim=0)": 85}
    assert facts["compute_dtypes"] == ["torch.float16"]


def test_all_ranks_refuse_a_wrong_combination_before_they_read_weights(by_rank):
    for found in by_rank:
        message = found["4 bits, refused by the table"]["error"]
        assert "quantize.storage is bf16, precision is fp16 and strategy is fsdp2" in message
        assert "set `quantize: {storage: uint8}`" in message


def test_weights_in_4_bits_that_would_learn_are_named(by_rank):
    for found in by_rank:
        message = found["4 bits that learn"]["error"]
        assert "learn names 3 weights in 4 bits, which cannot learn" in message
        assert "model.language_model.layers.1.mlp.down_proj.weight" in message
