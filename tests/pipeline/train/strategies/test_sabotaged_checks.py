"""Each check fails where what it reads was sabotaged, on all ranks and with a remedy."""

from __future__ import annotations

import pytest

from tests.pipeline.train.strategies.cases import SABOTAGED
from tests.pipeline.train.strategies.cases_preflight import PROBLEMS

OTHERS = "rank 1 has built other weights than rank 0 (language."
ERRORS = {
    "other weights on rank 1": f"{OTHERS}lm_head.weight, language.",
    "another buffer on rank 1": f"{OTHERS}model.rotary_emb.inv_freq)",
    "other shapes on rank 1": f"{OTHERS}lm_head.weight",
    "no model on rank 0": "/nothing cannot be loaded",
    "parameter that nothing uses": (
        "after the first backward pass idle.weight, idle.bias of rank 1 have no gradient"
    ),
    **{name: message for name, (*_, message) in SABOTAGED.items()},
    **{f"preflight, {name}": message for name, (_, message) in PROBLEMS.items()},
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_did_not_take_effect_or_cannot_run_is_an_error_on_all_ranks(by_rank, case):
    errors = [found[case]["error"] for found in by_rank]
    for error in errors:
        assert error.startswith("StageConfigError: ")
        assert ERRORS[case] in error
    if case.startswith("preflight"):
        assert errors[0] == errors[1]


def test_the_preflight_of_rank_0_records_precision_and_kernels(by_rank):
    first, second = (found["preflight"] for found in by_rank)
    assert second["found"] == {}
    assert first["written"] == first["found"]
    assert [case["spans"] for case in (first, second)] == [["preflight"]] * 2
    told = first["found"]
    assert (told["precision"], told["capability"]) == ("fp32", None)
    kernels = dict.fromkeys(("vision", "language", "language, packed"), "flash")
    assert told["attention"] == kernels
    assert told["packed_attention"] == {
        "packed": "dense",
        "reason": "there is no varlen kernel for CPUs",
    }
    assert told["cudnn_attention"] in (True, False)
    memory = told["memory"]
    assert memory["mask_bytes"] > 0
    assert memory["accumulated_bytes"] > memory["gradients_bytes"] > 0
    assert memory["expected_bytes"] > memory["least_bytes"] > memory["weights_bytes"] > 0
    assert told["checkpoint_bytes"] > 2 * memory["optimizer_bytes"]
    assert 0 < told["duration_s"] < 5


def test_the_rank_that_has_a_problem_is_named(found):
    error = found["preflight, little memory on rank 1"]["error"]
    assert "the ranks on node-1 must hold" in error
    assert error.endswith("(rank 1 on node-1)")


def test_a_model_that_is_too_large_is_refused_in_seconds_with_a_remedy(found):
    case = found["preflight, a model that is too large"]
    assert case["seconds"] < 10
    assert "train adapters instead of weights" in case["error"]
