"""Each check fails where what it looks at was sabotaged, on all ranks and with a remedy."""

from __future__ import annotations

import pytest
import torch

from pipeline.train.strategy_checks import check_optimizer
from slurm_jobs.shared.errors import StageConfigError


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "other weights on rank 1",
            "rank 1 has built other weights than rank 0 (language.lm_head.weight, language.",
        ),
        (
            "another buffer on rank 1",
            "rank 1 has built other weights than rank 0 (language.model.rotary_emb.inv_freq)",
        ),
        (
            "another strategy than asked for",
            "fsdp2 did not take effect: vision.embeddings.patch_embedding.weight lies whole",
        ),
        ("root forgotten", "embeddings.patch_embedding.weight lies whole, expected Shard(dim=0)"),
        ("units forgotten", "parts gathered one at a time: 1, expected 5"),
        ("hybrid forgotten", "lies Shard(dim=0), expected Replicate(), Shard(dim=0)"),
        (
            "activation checkpointing forgotten",
            "layers recomputed in the backward pass: 0, expected 4; use the versions of",
        ),
        ("compile forgotten", "layers that are compiled: 0, expected 2; use the versions of"),
        ("precision forgotten", "computes in: torch.float32, expected torch.bfloat16"),
        ("half precision stored", "is stored as torch.bfloat16, expected torch.float32"),
        ("optimizer made before sharding", "in no group, and would never change"),
        (
            "parameter that nothing uses",
            "after the first backward pass idle.weight, idle.bias of rank 1 have no gradient",
        ),
    ],
)
def test_what_did_not_take_effect_is_an_error_on_all_ranks(by_rank, case, message):
    for found in by_rank:
        assert found[case]["error"].startswith("StageConfigError: ")
        assert message in found[case]["error"]


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
