"""Each check fails where what it reads was sabotaged, on all ranks and with a remedy."""

from __future__ import annotations

import pytest
import torch

from pipeline.train.strategies.weight_distribution import check_can_be_shared
from pipeline.train.strategy_checks.effect import check_optimizer
from slurm_jobs.base.errors import StageConfigError
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


def test_a_parameter_in_two_groups_is_named():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    optimizer.param_groups.append({**optimizer.param_groups[0], "params": [model.bias]})
    with pytest.raises(StageConfigError, match="bias: in several groups"):
        check_optimizer(model, optimizer)


def test_a_frozen_parameter_needs_no_group():
    model = torch.nn.Linear(2, 2)
    model.bias.requires_grad_(requires_grad=False)
    check_optimizer(model, torch.optim.SGD([model.weight]))


def test_every_rank_has_all_weights_buffers_and_ties_that_rank_0_has_read(by_rank):
    for found in by_rank:
        case = found["loaded once"]
        assert case["different"] == []
        assert case["num"] == case["num_expected"] > 50
        assert case["is_tied"]


def test_a_tensor_that_is_no_buffer_is_refused_before_anything_is_sent():
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        check_can_be_shared(model)
        model[0].table = torch.zeros(2)
    with pytest.raises(StageConfigError, match=r"0\.table cannot be sent from rank 0.*ddp"):
        check_can_be_shared(model)


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
