"""Mixtures of experts in models of transformers: where their weights are, and what a token uses."""

from __future__ import annotations

import pytest
import torch

from pipeline.models.computation.experts import (
    EXPERT_PARAMETERS,
    is_experts,
    is_router,
    num_used_weights,
)
from pipeline.models.finetuning.quantized_linear import quantize_model
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import QuantizeConfig
from tests.pipeline.kinds import EXPERT_KINDS


@pytest.mark.parametrize("name", EXPERT_KINDS)
def test_each_layer_of_the_language_model_has_experts_and_a_router(make_kind, name):
    model = make_kind(name).build()
    for layer in model.towers()[1]:
        assert sum(map(is_experts, layer.modules())) == 1
        assert sum(map(is_router, layer.modules())) == 1
    vision = model.towers()[0]
    assert not any(is_experts(m) or is_router(m) for layer in vision for m in layer.modules())


def test_layers_without_experts_have_none(make_kind):
    model = make_kind("qwen3_vl").build()
    assert not any(is_experts(module) or is_router(module) for module in model.modules())


@pytest.mark.parametrize("name", EXPERT_KINDS)
def test_a_token_has_a_gradient_for_just_the_weights_it_uses(make_kind, name):
    experts = next(module for module in make_kind(name).build().modules() if is_experts(module))
    token = torch.ones(1, experts.hidden_dim)
    experts(token, torch.tensor([[0, 3]]), torch.tensor([[0.4, 0.6]])).sum().backward()
    for parameter in EXPERT_PARAMETERS:
        num_moved = int(getattr(experts, parameter).grad.count_nonzero())
        assert num_moved == num_used_weights(experts, parameter, 2)


@pytest.mark.parametrize("name", EXPERT_KINDS)
def test_experts_in_4_bits_are_refused(make_kind, name):
    model = make_kind(name).build()
    # Each layer has 4 experts of 3 matrices of 32 by 32.
    num_weights = 3 * 4 * 3 * 32 * 32
    with pytest.raises(StageConfigError, match=f"quantize: {num_weights:,} weights .* experts"):
        quantize_model(model, QuantizeConfig(), torch.device("cpu"))
