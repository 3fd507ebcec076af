"""A file of accelerate trains what our own strategies do, bit for bit, or fails; see the cases."""

from __future__ import annotations

import math

import pytest

from tests.pipeline.train.strategies.accelerate_cases import TWINS

pytestmark = pytest.mark.slow
BY_FILE = ("ddp", "fsdp2")


@pytest.fixture
def by_rank(accelerated_by_rank):
    return accelerated_by_rank


@pytest.fixture
def found(accelerated_by_rank):
    return accelerated_by_rank[0]


@pytest.mark.parametrize("case", TWINS)
def test_an_accelerate_config_learns_the_same_as_our_own_strategy(found, case):
    ours, theirs = found[TWINS[case]], found[case]
    assert theirs["weights"] == ours["weights"]
    assert theirs["losses"] == ours["losses"]
    assert len(set(theirs["losses"])) == 3, "nothing was learned"


@pytest.mark.parametrize("name", BY_FILE)
def test_packed_samples_of_all_ranks_are_compared_with_themselves_alone(found, name):
    assert found[f"accelerate {name}, packed"]["packed_check"]["num_samples"] == 2


def test_adapters_learn_what_they_learn_in_one_process(found):
    alone = pytest.approx(found["single, adapters"]["losses"], rel=1e-6)
    for name in BY_FILE:
        assert found[f"accelerate {name}, adapters"]["losses"] == alone


@pytest.mark.parametrize("name", BY_FILE)
def test_a_rank_without_an_image_stays_in_step(found, name):
    alone = found["text on rank 1, smolvlm, single"]["losses"]
    assert found[f"accelerate {name}, text on rank 1"]["losses"] == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("name", BY_FILE)
def test_an_overflow_that_one_rank_sees_is_skipped_on_all(by_rank, name):
    for found in by_rank:
        case = found[f"accelerate {name}, overflow on rank 1"]
        assert (case["num_skips"], case["scale"]) == (1, 512.0)
        assert [math.isinf(norm) for norm in case["norms"]] == [False, True, False]
        assert case["weights"] == found[f"{name}, overflow on rank 1"]["weights"]


@pytest.mark.parametrize(
    ("case", "facts"),
    [
        ("ddp", ("MULTI_CPU", "DistributedDataParallel", {"replicate": 2}, 0)),
        ("fsdp2", ("FSDP", "FSDPSmallVLM", {"shard": 2}, 5)),
        ("fsdp2, one unit", ("FSDP", "FSDPSmallVLM", {"shard": 2}, 1)),
        ("fsdp2, language layers", ("FSDP", "FSDPSmallVLM", {"shard": 2}, 3)),
    ],
)
def test_facts_describe_what_the_file_resulted_in(found, case, facts):
    told = found[f"accelerate {case}"]["facts"]
    keys = ("distributed_type", "model_class", "mesh", "num_units")
    assert tuple(told[key] for key in keys) == facts


def test_a_file_whose_sharding_is_ignored_ends_the_attempt_on_all_ranks(by_rank):
    for found in by_rank:
        message = found["accelerate without sharding on CPUs"]["error"]
        assert message.startswith("StageConfigError: strategy accelerate did not take effect: ")
        assert "distributed_type is MULTI_CPU, expected FSDP; accelerate shards nothing" in message


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("accelerate's plugin ignored", "weight has the placement whole, expected Shard(dim=0)"),
        ("accelerate's layers forgotten", "parts gathered one at a time: 1, expected 5"),
        (
            "accelerate's weight left whole",
            "lm_head.weight has the placement whole, expected Shard",
        ),
        ("accelerate's type another", "has the placement Shard(dim=0), expected whole"),
        ("accelerate fsdp2, no such layer", "names LlamaDecoderLayer, but this model has"),
        ("accelerate refuses", "accelerate refuses it: invalid truth value shard_grad_op"),
    ],
)
def test_what_did_not_take_effect_is_named(by_rank, case, message):
    for found in by_rank:
        assert message in found[case]["error"]
        assert found[case]["error"].startswith(("StageConfigError: ", "StageDataError: "))


def test_what_the_job_inherited_changes_nothing_and_stays_as_it_was(found):
    case = found["accelerate, variables and state of another"]
    assert case["weights"] == found["ddp"]["weights"]
    assert case["unchanged"]


@pytest.mark.parametrize("name", BY_FILE)
def test_accelerate_keeps_no_model_of_an_earlier_phase(found, name):
    case = found[f"second phase, accelerate {name}"]
    assert case["num_kept"] == 0
    assert case["is_anew"] == (name == "ddp")
    first, again, closed = case["num_wraps"]
    assert (first > 0) == (name == "ddp"), "whole weights are cast around the forward pass"
    assert (again, closed) == (first, 0)
